"""From an agentic config that passed its checks to a running pipeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from roll_core.config.agentic import EnvManagerConfig
from roll_core.config.schema import AgenticConfig, DataArgs, GeneratingArgs
from roll_core.display import RunDisplay
from roll_core.objects import resolve_object
from roll_core.pipelines.environments import MakeEnvironments, environments_of, style_of
from roll_core.pipelines.launch import Setting
from roll_core.pipelines.start import Outcome, Recipe, Started, make_parts, run_pipeline

if TYPE_CHECKING:
    from roll_core.cluster.calls import Waiter
    from roll_core.cluster.group import WorkerGroup
    from roll_core.inference import SamplingParams
    from roll_core.pipelines.agentic import AgenticPipeline
    from roll_core.pipelines.episodes import Episodes
    from roll_core.pipelines.remote_episodes import RemoteEpisodes
    from roll_core.rollout.env_async_collector import AsyncEnvCollector
    from roll_core.rollout.env_collector import EnvCollector, GroupFilter
    from roll_core.rollout.env_dialogue import Dialogue
    from roll_core.rollout.env_episode import Style
    from roll_core.rollout.env_groups import GroupOrder
    from roll_core.rollout.environments import Environments


@dataclass(frozen=True)
class Words:
    """The tokenizer with its template, and the tokens that end an answer or fill up a row."""

    dialogue: Dialogue
    stop_token_ids: tuple[int, ...]
    pad_token_id: int


def run_agentic(setting: Setting, display: RunDisplay) -> Outcome:
    """Run an agentic config; raises as `run_rlvr`."""
    config = setting.config
    assert isinstance(config, AgenticConfig), "other kinds of config have recipes of their own"
    return run_pipeline(setting, display, Recipe(lambda notify: read_words(config), partial(_assemble, config)))


def read_words(config: AgenticConfig) -> Words:
    """Read the model's tokenizer."""
    from transformers import AutoTokenizer

    from roll_core.rollout.env_dialogue import Dialogue

    role = config.actor_infer if config.is_rollout_only else config.actor_train
    tokenizer = AutoTokenizer.from_pretrained(role.model_args.model_name_or_path, local_files_only=True)
    template = (config.actor_train.data_args or config.actor_infer.data_args or DataArgs()).template
    stops = () if tokenizer.eos_token_id is None else (int(tokenizer.eos_token_id),)
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else (*stops, 0)[0]
    return Words(Dialogue(tokenizer, template or "native"), stops, int(pad))


def _assemble(config: AgenticConfig, started: Started, words: Words) -> AgenticPipeline:
    from roll_core.pipelines.agentic import AgenticPipeline
    from roll_core.pipelines.agentic_shaping import EpisodeShaper
    from roll_core.pipelines.remote_episodes import RemoteEpisodes

    crew, waiter, notify = started.crew, started.waiter, started.display.notice
    waiter.unwatch_peers(crew.actor_infer)
    episodes: Episodes | RemoteEpisodes
    if crew.episodes is not None:
        episodes = RemoteEpisodes(crew.episodes, crew.actor_infer, waiter, started.delivery, notify)
    else:
        make_environments = partial(environments_of, config, started.site, started.setting.platform)
        episodes = make_episodes(config, crew.actor_infer, waiter, words, notify, make_environments)
    parts = make_parts(
        started,
        collector=episodes,
        shaper=EpisodeShaper(config),
        pad_token_id=words.pad_token_id,
        tokenizer=words.dialogue.tokenizer,
    )
    return AgenticPipeline(parts, episodes, validates=config.val_env_manager is not None)


def make_episodes(
    config: AgenticConfig,
    engines: WorkerGroup,
    waiter: Waiter,
    words: Words,
    notify: Callable[[str], None],
    make_environments: MakeEnvironments,
) -> Episodes:
    """What plays a run's episodes in this process, and their environments."""
    from roll_core.pipelines.episodes import Episodes

    def make(purpose: str, is_free: bool) -> EnvCollector | AsyncEnvCollector:
        maker = make_async_collector if is_free else make_collector
        return maker(config, engines, waiter, words, purpose, notify, make_environments)

    collector, held_out = make("train", config.is_free), None
    if config.val_env_manager is not None:
        held_out = make("val", config.val_env_manager.pace == "free")
    return Episodes(config, words.dialogue, words.pad_token_id, collector, held_out)


def make_collector(
    config: AgenticConfig,
    engines: WorkerGroup,
    waiter: Waiter,
    words: Words,
    purpose: str,
    notify: Callable[[str], None],
    make_environments: MakeEnvironments,
) -> EnvCollector:
    """Collects the episodes of a purpose in lockstep; each purpose has seeds of its own.

    "train" and "rollout" play in the environments of `train_env_manager`, "val" in those of `val_env_manager`.
    """
    from roll_core.rollout.env_collector import EnvCollector
    from roll_core.rollout.env_rollout import EnvRollout

    stage = _stage(config, words, purpose, make_environments)
    manager, dialogue = stage.manager, words.dialogue
    rollout = EnvRollout(engines, stage.pool, waiter, dialogue, stage.styles, config.seed, notify, config.most_running)
    return EnvCollector(
        rollout,
        stage.order,
        stage.params,
        num_groups=stage.num_groups,
        group_size=manager.group_size,
        redundancy=manager.group_size_redundancy,
        at_once=manager.num_env_groups,
        drops=stage.drops,
    )


def make_async_collector(
    config: AgenticConfig,
    engines: WorkerGroup,
    waiter: Waiter,
    words: Words,
    purpose: str,
    notify: Callable[[str], None],
    make_environments: MakeEnvironments,
) -> AsyncEnvCollector:
    """Collects the episodes of a purpose at a free pace; those of the training while it trains, as the config says."""
    from roll_core.rollout.env_async_collector import AsyncEnvCollector
    from roll_core.rollout.env_flow import EpisodeFlow, GroupShape

    stage = _stage(config, words, purpose, make_environments)
    manager = stage.manager
    flow = EpisodeFlow(
        engines,
        waiter,
        stage.pool,
        words.dialogue,
        stage.styles,
        config.seed,
        stage.order,
        stage.params,
        GroupShape(manager.group_size, manager.group_size_redundancy, manager.num_env_groups),
        drops=stage.drops,
        notify=notify,
        most_running=config.most_running,
    )
    if purpose != "train":
        return AsyncEnvCollector(flow, stage.num_groups, 0)
    return AsyncEnvCollector(flow, stage.num_groups, config.async_generation_ratio, config.num_redundant_groups)


@dataclass(frozen=True)
class _Stage:
    """Where a purpose's episodes are played, and how."""

    manager: EnvManagerConfig
    pool: Environments
    styles: Mapping[str, Style]
    order: GroupOrder
    params: SamplingParams
    num_groups: int
    drops: GroupFilter | None


def _stage(config: AgenticConfig, words: Words, purpose: str, make_environments: MakeEnvironments) -> _Stage:
    from roll_core.pipelines.sampling import sampling_params
    from roll_core.rollout.env_groups import GroupOrder, tags_of_groups

    manager, batch_size = config.train_env_manager, config.rollout_batch_size
    if purpose == "val":
        assert config.val_env_manager is not None, "whoever validates has environments for it"
        manager, batch_size = config.val_env_manager, config.val_batch_size
    sampling = config.actor_infer.generating_args or GeneratingArgs()
    if manager.generating_args is not None:
        # What is written of the manager's own sampling wins, and only that.
        own = {key: getattr(manager.generating_args, key) for key in manager.generating_args.model_fields_set}
        sampling = sampling.model_copy(update={key: value for key, value in own.items() if value is not None})
    tags = tags_of_groups(manager.tags, manager.num_env_groups, manager.num_groups_partition)
    return _Stage(
        manager,
        make_environments(manager),
        {tag: style_of(config, tag) for tag in manager.tags},
        GroupOrder(tags, config.seed, purpose),
        sampling_params(sampling, words.stop_token_ids),
        batch_size // manager.group_size,
        _filter(config, manager, "val" if purpose == "val" else "train"),
    )


def _filter(config: AgenticConfig, manager: EnvManagerConfig, mode: str) -> GroupFilter | None:
    if manager.own_group_filter is None:
        return None
    made: Any = resolve_object(manager.own_group_filter, {}, "group filter")(config, manager, mode)
    return lambda start, episodes: bool(made.filter(start.env_group, start.episode, episodes))

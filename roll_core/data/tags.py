"""Which reward grades a row: from the `tag` column to a domain, that is a name under `rewards`."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

from roll_core.data.messages import BadField, kind_of
from roll_core.errors import ConfigError, Problem

PUBLISHED_TAGS = {"KodCode": "code_sandbox", "RLVR": "llm_judge"}
"""Tags that published data sets carry, and the domain that grades them when a reward of that name is configured."""


def tag_routes(rewards: Mapping[str, object]) -> dict[str, str]:
    """Tag -> domain, from the `rewards` section (each value a mapping or an object with `tag_included`).

    A reward answers to the tags in its `tag_included`; to its own name, unless another reward claims that tag; and to
    the published tags of its domain, unless claimed.

    Raises:
        ConfigError: two rewards claim one tag.
    """
    routes: dict[str, str] = {}
    problems = []
    for domain, reward in rewards.items():
        for tag in _tags_of(reward):
            owner = routes.setdefault(tag, domain)
            if owner != domain:
                path = f"rewards.{domain}.tag_included"
                hint = f"leave it to one of rewards.{owner} and rewards.{domain}"
                problems.append(Problem(path, f"the tag is claimed by rewards.{owner} too", tag, hint))
    if problems:
        raise ConfigError(problems)
    for domain in rewards:
        routes.setdefault(domain, domain)
    for tag, domain in PUBLISHED_TAGS.items():
        if domain in rewards:
            routes.setdefault(tag, domain)
    return routes


def route(tag: object, routes: Mapping[str, str]) -> str:
    """The domain of a row's tag.

    Raises:
        BadField: the tag is not text, is empty, or no reward answers to it.
    """
    if not isinstance(tag, str):
        raise BadField("", f"must be text, found {kind_of(tag)}", tag, _known(routes))
    if tag in routes:
        return routes[tag]
    if not tag.strip():
        raise BadField("", "is empty", tag, _known(routes))
    close = nearest(tag, list(routes))
    advice = f"did you mean '{close}'? " if close else "add it to the tag_included of the reward that grades it; "
    raise BadField("", "no reward answers to this tag", tag, advice + _known(routes))


def nearest(word: str, names: Sequence[str]) -> str:
    """The name that `word` was probably meant to be, or empty text. Stray spaces and upper case count as nothing."""
    plain = {name.strip().lower(): name for name in names}
    if word.strip().lower() in plain:
        return plain[word.strip().lower()]
    close = difflib.get_close_matches(word.strip().lower(), list(plain), n=1, cutoff=0.75)
    return plain[close[0]] if close else ""


def _known(routes: Mapping[str, str]) -> str:
    return f"known tags: {', '.join(routes) or 'none, as no reward is configured'}"


def _tags_of(reward: object) -> Sequence[str]:
    tags = reward.get("tag_included") if isinstance(reward, Mapping) else getattr(reward, "tag_included", None)
    return tags or ()

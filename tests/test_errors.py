import pickle

from roll_core.errors import ConfigError, Problem


def test_a_workers_config_error_reaches_the_driver_as_it_was() -> None:
    error = ConfigError([Problem("pretrain", "there is no such folder", "./model", "another")], "run.yaml")
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.problems, copy.source) == (str(error), error.problems, error.source)

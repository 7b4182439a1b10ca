"""What a study is given in tests, where nobody follows its progress."""


def nothing(*_: object) -> None:
    """No progress is shown."""

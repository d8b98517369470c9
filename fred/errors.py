"""The base of every error of ours. A subclass says by its type what to do next."""


class FredError(Exception):
    """An error this product raises on purpose; its docstring is its message unless one is given."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message or (type(self).__doc__ or type(self).__name__).strip().splitlines()[0])


class TransientError(FredError):
    """It may work when it is tried again."""


class PermanentError(FredError):
    """Trying the same again cannot work."""

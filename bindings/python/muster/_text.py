"""Texts and numbers for the library. Its texts are strings in C, which end at their first zero byte."""

from operator import index
from typing import Optional

from ._errors import InvalidError


def whole(
    value: int, name: str, least: int = -(1 << 31), most: int = (1 << 31) - 1, expected: Optional[str] = None
) -> int:
    """A number that the library takes. Others would lose bits on their way. Raises `InvalidError`; `TypeError` for what is
    no whole number. `expected` is for numbers of which the library takes fewer, and tells so itself.
    """
    value = index(value)
    if not least <= value <= most:
        raise InvalidError(f"{name}: is {value}; expected {expected or f'{least} to {most}'}")
    return value


def rank_of(value: int, name: str, size: str = "the group's size") -> int:
    """A rank. Whether there is such a rank the library finds out."""
    return whole(value, name, expected=f"0 to {size} less 1")


def source_of(value: int) -> int:
    return whole(value, "source", expected="0 to the group's size less 1, or muster.ANY_SOURCE")


def tag_of(value: int) -> int:
    return whole(value, "tag", expected="0 to 2147483647")


def wanted_tag_of(value: int, name: str = "tag") -> int:
    return whole(value, name, expected="0 to 2147483647, or muster.ANY_TAG")


def utf8(value: str, name: str) -> bytes:
    """Raises `InvalidError` where a letter has no UTF-8: half of a pair, as Python has it for a byte of a file's name."""
    try:
        return value.encode()
    except UnicodeEncodeError as error:  # the text itself is not told: it may be a password
        raise InvalidError(f"{name}: has the letter {value[error.start]!r}, which UTF-8 does not have") from None


def text_of(value: str, name: str) -> bytes:
    """UTF-8. Raises `InvalidError` where a zero byte would cut the text."""
    if not isinstance(value, str):
        raise InvalidError(f"{name}: {value!r} is a {type(value).__name__}; a string is needed")
    if "\0" in value:
        raise InvalidError(f"{name}: has a zero byte in it, which no text here may have")
    return utf8(value, name)

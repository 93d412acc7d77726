"""Checks of arguments: every message names the argument, what was found and what is wanted."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any


def shown(value: Any) -> str:
    """The value, short enough for a message."""
    try:
        text = repr(value)
    except Exception:  # a broken object must not hide the argument's name
        text = "an object that cannot be shown"
    text = text if len(text) <= 60 else text[:57] + "..."
    return f"{text} ({type(value).__name__})"


def text_of(name: str, value: Any, *, empty: bool = False) -> str:
    """A string."""
    if not isinstance(value, str):
        raise TypeError(f"{name} is {shown(value)}; wanted: a string")
    if not value and not empty:
        raise ValueError(f"{name} is an empty string; wanted: a name")
    if "\0" in value:
        raise ValueError(f"{name} has a zero byte in it: {shown(value)}")
    return value


def column_of(name: str, value: Any) -> str:
    """The name of a column; None is the empty string, which means: find it."""
    return "" if value is None else text_of(name, value)


def texts_of(name: str, value: Any) -> list[str]:
    """Strings: one, or several in a list."""
    if value is None:
        return []
    if isinstance(value, str):
        return [text_of(name, value)]
    if isinstance(value, bytes) or not isinstance(value, Iterable):
        raise TypeError(f"{name} is {shown(value)}; wanted: a string or a list of strings")
    return [text_of(f"{name}[{i}]", entry) for i, entry in enumerate(value)]


def integer_of(name: str, value: Any, least: int, most: int = 2**63 - 1) -> int:
    """A whole number in a range; numbers of NumPy too."""
    if isinstance(value, bool) or not hasattr(type(value), "__index__"):
        raise TypeError(f"{name} is {shown(value)}; wanted: a whole number")
    try:
        number = value.__index__()
    except TypeError as error:  # an array of several
        raise TypeError(f"{name} is {shown(value)}; wanted: a whole number") from error
    if not least <= number <= most:
        upper = "" if most == 2**63 - 1 else f" and at most {most}"
        raise ValueError(f"{name} is {number}; wanted: at least {least}{upper}")
    return number


def number_of(name: str, value: Any) -> float:
    """A finite number."""
    if isinstance(value, (bool, str, bytes)):
        raise TypeError(f"{name} is {shown(value)}; wanted: a number")
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(f"{name} is {shown(value)}; wanted: a number") from error
    if number != number or number in (float("inf"), float("-inf")):
        raise ValueError(f"{name} is {number}; wanted: a finite number")
    return number


def flag_of(name: str, value: Any) -> bool:
    """True or False."""
    if value is not True and value is not False:
        raise TypeError(f"{name} is {shown(value)}; wanted: True or False")
    return value


def choice_of(name: str, value: Any, allowed: tuple[Any, ...]) -> Any:
    """One of a few values."""
    for choice in allowed:
        if type(value) is type(choice) and value == choice:
            return choice
    raise ValueError(f"{name} is {shown(value)}; wanted: one of {', '.join(map(repr, allowed))}")


def path_of(name: str, value: Any) -> str:
    """A path as a string."""
    try:
        path = os.fspath(value)
    except TypeError:
        raise TypeError(f"{name} is {shown(value)}; wanted: a path") from None
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    return text_of(name, path)


def shard_of(name: str, value: Any) -> tuple[int, int]:
    """The place of a share, from 1, and how many there are: (1, 8) is the first of eight."""
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise TypeError(f"{name} is {shown(value)}; wanted: (1, 8) for the first of eight")
    count = integer_of(f"{name}[1]", value[1], 1, 2**31 - 1)
    return integer_of(f"{name}[0]", value[0], 1, count), count


def bytes_of(name: str, value: Any) -> int:
    """An amount of memory: a number of bytes, or "256MB", "2 GB", "1.5GiB"."""
    if not isinstance(value, str):
        return integer_of(name, value, 64 << 20)
    text = value.strip()
    digits = len(text)
    while digits > 0 and not (text[digits - 1].isdigit() or text[digits - 1] == "."):
        digits -= 1
    unit = text[digits:].strip().lower().removesuffix("b").removesuffix("i")
    try:
        number = float(text[:digits])
        size = int(number * 1024 ** ["", "k", "m", "g", "t"].index(unit))
    except (ValueError, OverflowError):
        raise ValueError(f"{name} is {shown(value)}; wanted: an amount such as 256MB or 2GB") from None
    return integer_of(name, size, 64 << 20, 1 << 60)

"""Reads the URLs that an engine accepts, and hides the passwords in them. No I/O but `$REDISQ_URL`."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

from redis.connection import parse_url

from redisq.errors import InvalidInput

DEFAULT_URL = "redis://127.0.0.1:6379/0"
SCHEMES = ("redis", "rediss", "unix", "sentinel", "embedded", "memory")
_SENTINEL_PORT = 26379
_SECRET_OPTION = re.compile(r"((?:password|username)=)[^&#]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Address:
    """A URL taken apart. `options` are arguments of a redis-py connection; other fields belong to one scheme each."""

    scheme: str
    url: str = field(repr=False)
    options: dict[str, Any] = field(default_factory=dict, repr=False)
    path: str = ""  # embedded: the directory, empty for none
    name: str = ""  # memory: the shared store, empty for a private one; sentinel: the service
    hosts: tuple[tuple[str, int], ...] = ()  # sentinel
    sentinel_options: dict[str, Any] = field(default_factory=dict, repr=False)


def parse(url: str | None) -> Address:
    """`url`, else `$REDISQ_URL`, else the local default, taken apart. InvalidInput says what is wrong with it."""
    text = url if url is not None else os.environ.get("REDISQ_URL") or DEFAULT_URL
    if not isinstance(text, str):
        raise InvalidInput(f"url must be a str, not {type(text).__name__}")
    scheme, separator, _ = text.partition("://")
    if not separator or scheme not in SCHEMES:
        raise InvalidInput(f"url must begin with {', '.join(f'{name}://' for name in SCHEMES)}: not {redacted(text)!r}")
    try:
        parts = urlsplit(text)
        if scheme != "sentinel":
            _ = parts.port  # a property that raises
    except ValueError:
        # the library's text could show a password that holds a special character
        raise _invalid(
            text, "its host or port cannot be read; percent-encode special characters in the password"
        ) from None
    if parts.fragment or text.endswith("#"):
        raise _invalid(text, "it holds a '#'; write it as %23")
    return _PARSERS[scheme](text, parts)


def redacted(url: str) -> str:
    """`url` fit for a log: every password in it, and a user name in the options, is replaced by `***`."""
    head, separator, rest = url.partition("://")
    # greedy on purpose: a password may hold an @ that somebody forgot to encode
    access, at, place = rest.rpartition("@")
    if at:
        user, colon, _ = access.partition(":")
        rest = f"{user}{':***' if colon else ''}@{place}"
    return head + separator + _SECRET_OPTION.sub(r"\1***", rest)


def format_url(kind: str, options: dict[str, Any]) -> str:
    """The URL of a redis-py connection's arguments. `kind` is redis, rediss or unix."""
    access = _access(options)
    db = int(options.get("db") or 0)
    if kind == "unix":
        return f"unix://{access}{quote(options['path'])}?db={db}"
    host = str(options.get("host") or "localhost")
    secure = {name: value for name, value in options.items() if name.startswith("ssl_") and isinstance(value, str)}
    query = "&".join(f"{name}={quote(value, safe='')}" for name, value in sorted(secure.items()))
    return f"{kind}://{access}{_shown(host)}:{options.get('port') or 6379}/{db}" + (f"?{query}" if query else "")


def format_sentinel_url(service: str, options: dict[str, Any], sentinels: list[dict[str, Any]], *, secure: bool) -> str:
    """The URL of a service from the arguments of a connection to its master, and of those to its Sentinels."""
    hosts = ",".join(f"{_shown(each['host'])}:{each['port']}" for each in sentinels)
    query = {f"sentinel_{name}": sentinels[0].get(name) for name in ("username", "password")}
    query["ssl"] = "true" if secure else None
    text = urlencode({name: value for name, value in query.items() if value})
    url = f"sentinel://{_access(options)}{hosts}/{quote(service, safe='')}/{int(options.get('db') or 0)}"
    return f"{url}?{text}" if text else url


def _access(options: dict[str, Any]) -> str:
    if not options.get("username") and not options.get("password"):
        return ""
    password = options.get("password")
    return quote(options.get("username") or "", safe="") + (f":{quote(str(password), safe='')}@" if password else "@")


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _invalid(url: str, reason: str) -> InvalidInput:
    return InvalidInput(f"url {redacted(url)!r}: {reason}")


def _server(text: str, parts: SplitResult) -> Address:
    if parts.scheme == "unix":
        if not parts.path:
            raise _invalid(text, "it names no socket; write unix:///path/to/socket")
    elif not re.fullmatch(r"(/\d*)?/?", parts.path):
        raise _invalid(text, "its path must be the number of a database, like /0")
    try:
        options = parse_url(text)
    except ValueError:
        raise _invalid(text, "one of its options has a value that cannot be read") from None
    options.pop("connection_class", None)
    return Address(parts.scheme, text, options)


def _sentinel(text: str, parts: SplitResult) -> Address:
    access, _, places = parts.netloc.rpartition("@")
    user, _, password = access.partition(":")
    service, _, db = parts.path.removeprefix("/").partition("/")
    if not service or not re.fullmatch(r"\d{0,9}", db):
        raise _invalid(text, "write sentinel://host:26379,host:26379/SERVICE/DB")
    given = dict(parse_qsl(parts.query))
    secure = given.pop("ssl", "false").lower()
    sentinel_options = {
        name: given.pop(f"sentinel_{name}") for name in ("username", "password") if f"sentinel_{name}" in given
    }
    if given or secure not in {"true", "false", "1", "0"}:
        raise _invalid(text, "its options may be sentinel_username, sentinel_password and ssl=true or false")
    options: dict[str, Any] = {"db": int(db or 0), "ssl": secure in {"true", "1"}}
    if user:
        options["username"] = unquote(user)
    if password:
        options["password"] = unquote(password)
    hosts = tuple(_host_and_port(text, place) for place in places.split(","))
    return Address("sentinel", text, options, name=unquote(service), hosts=hosts, sentinel_options=sentinel_options)


def _host_and_port(text: str, place: str) -> tuple[str, int]:
    found = re.fullmatch(r"(\[[^\]]+\]|[^:\[\]]+)(?::(\d{1,5}))?", place)
    if found is None:
        raise _invalid(text, "each Sentinel must be host or host:port")
    return found.group(1).strip("[]"), int(found.group(2) or _SENTINEL_PORT)


def _embedded(text: str, parts: SplitResult) -> Address:
    if parts.netloc:
        raise _invalid(text, "a directory needs three slashes, as in embedded:///path/to/dir")
    if parts.query or text.endswith("?"):
        raise _invalid(text, "it holds a '?'; write it as %3F")
    path = unquote(parts.path)
    if "\0" in path:
        raise _invalid(text, "a path cannot hold a NUL byte")
    return Address("embedded", text, path="" if path == "/" else path)


def _memory(text: str, parts: SplitResult) -> Address:
    if parts.path.strip("/") or parts.query or "@" in parts.netloc:
        raise _invalid(text, "write memory:// or memory://NAME")
    return Address("memory", text, name=unquote(parts.netloc))


_PARSERS = {
    "redis": _server,
    "rediss": _server,
    "unix": _server,
    "sentinel": _sentinel,
    "embedded": _embedded,
    "memory": _memory,
}

# SPDX-License-Identifier: Apache-2.0
"""A bounded HTTP server on a Unix socket, whose file says who may connect."""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import socket

from vmqos.daemon.bounded_server import Application, BoundedServer

LONGEST = 107
"""Bytes of a socket's path: ``sun_path`` has 108, one of them for the zero at its end (unix(7))."""


class SocketUnusable(Exception):
    """The socket can't be made."""

    def __init__(self, option: str, path: str, reason: str) -> None:
        super().__init__(f"can't answer on {option} = {path}: {reason}")


class UnixServer:
    """Serves an application on a Unix socket from a thread of its own, between :meth:`start` and :meth:`stop`.

    A socket that an earlier process left behind is replaced; one that a process answers on is left to that process.
    Where this process may not connect, it can't tell: the socket was left behind if its owner is the user that this
    process gives its own to. The root of a unit, which has no ``CAP_DAC_OVERRIDE``, finds the gateway's so.

    :param option: the option that names the path, for the error: ``[api] socket``.
    :param path: the socket's; its directory is made where it is missing.
    :param mode: the socket's permissions in octal, such as ``660``.
    :param group: the name of the group that the socket belongs to; empty for the process's own.
    :param owner: the UID that the socket belongs to; ``None`` for the process's own.
    :param at_once: a path whose requests have a thread of their own.
    :raises SocketUnusable: if it can't be made.
    """

    def __init__(
        self,
        application: Application,
        option: str,
        path: str,
        *,
        mode: str,
        group: str = "",
        owner: int | None = None,
        at_once: str = "",
    ) -> None:
        self._path = path
        if (size := len(os.fsencode(path))) > LONGEST:
            raise SocketUnusable(option, path, f"the path has {size} bytes, and that of a socket has {LONGEST} at most")
        try:
            os.makedirs(os.path.dirname(path) or ".", mode=0o755, exist_ok=True)
            if os.path.isdir(path):
                raise SocketUnusable(option, path, "it is a directory")
            if os.path.isfile(path):
                raise SocketUnusable(option, path, "there is a file that is no socket; name another path, or remove it")
            is_taken = _is_taken(path)
            if is_taken:
                raise SocketUnusable(option, path, "another process answers there")
            if is_taken is None and (found := os.stat(path).st_uid) != (os.geteuid() if owner is None else owner):
                whose = f"the socket there belongs to {_user(found)}, and this process may not ask who answers on it"
                raise SocketUnusable(option, path, f"{whose}; if no process does, remove it (rm {path})")
            self._server = BoundedServer(application, option, at_once=at_once, unix_socket=path, unix_socket_perms=mode)
            if group or owner is not None:
                os.chown(path, -1 if owner is None else owner, grp.getgrnam(group).gr_gid if group else -1)
        except KeyError as error:
            raise SocketUnusable(option, path, f"socket_group: there is no group {group!r} on this host") from error
        except OSError as error:
            raise SocketUnusable(option, path, error.strerror or str(error)) from error

    def start(self) -> None:
        """Answer from now on."""
        self._server.start()

    def stop(self) -> None:
        """Remove the socket, and stop answering."""
        # In this order: once nobody answers on it, a process that starts puts its own there.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
        self._server.stop()


def _is_taken(path: str) -> bool | None:
    """Whether a process listens on a socket that is there. Of one whose queue is full, that is not sure, but likely.

    :returns: ``None`` where this process may not connect to it.
    """
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        except PermissionError:
            return None
        except BlockingIOError:
            return True
    return True


def _user(uid: int) -> str:
    """A user for an error's text."""
    try:
        return f"{pwd.getpwuid(uid).pw_name} (UID {uid})"
    except KeyError:
        return f"UID {uid}"

# SPDX-License-Identifier: Apache-2.0
"""Who may open resctrl's root, and so may take the lock on it.

The kernel mounts resctrl with the mode 0555 and has no option for another one (``rdt_fs_parameters`` in
fs/resctrl/rdtgroup.c). flock(2) needs no more than an open descriptor: any account of the host could hold the lock for
ever. ``resctrl-access.service`` closes the root at boot. This module closes it again after the operator or another
program has mounted it anew, and tells ``vmqos doctor`` who can open it.
"""

from __future__ import annotations

import grp
import logging
import os
import pwd
import stat

from vmqos.resctrl import mount
from vmqos.resctrl.exceptions import ResctrlError

LOG = logging.getLogger(__name__)

MODE = 0o750
"""Of resctrl's root: its owner changes groups, its group reads them."""


class Closer:
    """Keeps the root closed to all but its owner and one group.

    :param path: where resctrl is mounted.
    :param group: the group that may read it. If it is empty or does not exist now, the permissions are left alone; only
        where this process can't write to the root, the owner gets the right to: root without ``CAP_DAC_OVERRIDE``, as
        the agent's unit starts it, could make no group otherwise.
    """

    __slots__ = ("_failure", "_gid", "_group", "_path")

    def __init__(self, path: str, group: str) -> None:
        self._path = path
        self._group = group
        # Asked once: the answer may come from a server in the network.
        self._gid = gid_of(group)
        self._failure = ""

    def close(self) -> None:
        """Close the root if others may enter it; a root that is closed already is left as it is.

        Costs one ``stat`` where nothing is to be done. What fails is logged once. A directory that is no resctrl, by
        mistake or because nothing is mounted there, is left alone.
        """
        try:
            mode = stat.S_IMODE(os.stat(self._path).st_mode)
            if os.access(self._path, os.W_OK) if self._gid is None else not mode & stat.S_IRWXO:
                return
            mount.find(self._path, writable=False)
            if self._gid is None:
                os.chmod(self._path, mode | stat.S_IWUSR)
                return
            # The mode first: at no moment does the group, which may be any group of the host, have more than before.
            os.chmod(self._path, MODE)
            os.chown(self._path, -1, self._gid)
        except (ResctrlError, FileNotFoundError):
            # The pass tells of it.
            return
        except OSError as error:
            failure = error.strerror or str(error)
            if failure != self._failure:
                what = "can't be made writable" if self._gid is None else "stays open to all users of the host"
                LOG.warning("%s %s: %s", self._path, what, failure)
            self._failure = failure
            return
        self._failure = ""
        LOG.info("%s is now closed to all but root and the group %s", self._path, self._group)


def gid_of(group: str) -> int | None:
    """The group's number; ``None`` if there is no such group."""
    try:
        return grp.getgrnam(group).gr_gid if group else None
    except KeyError:
        return None


def name_of(gid: int) -> str:
    """The group's name, or its number where it has none."""
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def is_open_to_others(path: str) -> bool:
    """Whether an account that is neither the owner nor in the group of the directory can open it.

    :raises OSError: if the directory or one above it can't be looked at.
    """
    path = os.path.realpath(path)
    if not os.stat(path).st_mode & stat.S_IROTH:
        return False
    while (parent := os.path.dirname(path)) != path:
        path = parent
        if not os.stat(path).st_mode & stat.S_IXOTH:
            return False
    return True


def may_read(user: str, path: str) -> bool | None:
    """Whether a user can read what is in the directory, by its owner, group and mode; ``None`` if no such user exists.

    :raises OSError: if the directory can't be looked at.
    """
    try:
        account = pwd.getpwnam(user)
    except KeyError:
        return None
    status = os.stat(path)
    if account.pw_uid == 0:
        return True
    if account.pw_uid == status.st_uid:
        needed = stat.S_IRUSR | stat.S_IXUSR
    elif status.st_gid in os.getgrouplist(user, account.pw_gid):
        needed = stat.S_IRGRP | stat.S_IXGRP
    else:
        needed = stat.S_IROTH | stat.S_IXOTH
    return status.st_mode & needed == needed

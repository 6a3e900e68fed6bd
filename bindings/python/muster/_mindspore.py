"""The function names that MindSpore's users know, on the cluster that `init` has joined last.

Where MindSpore takes a group's name, these functions do, too: the name of a group that `create_group` has made, or one
of the names of the world. None is the world.
"""

import weakref
from typing import Dict, List, Optional, Sequence

from . import _life
from ._cluster import Cluster
from ._errors import InvalidError, StateError
from ._group import Group
from ._text import text_of

WORLD_GROUPS = ("hccl_world_group", "nccl_world_group", "mccl_world_group")

_groups: "weakref.WeakKeyDictionary[Cluster, Dict[str, Group]]" = weakref.WeakKeyDictionary()


def _cluster() -> Cluster:
    if not _life.open_clusters:
        raise StateError("no cluster has been joined in this process, or it has been left: call muster.init() first")
    return _life.open_clusters[-1]


def _group(name: Optional[str]) -> Group:
    cluster = _cluster()
    if name is None or name in WORLD_GROUPS:
        return cluster.world
    group = _groups.get(cluster, {}).get(name)
    if group is None:
        raise InvalidError(f"group: {name!r} is none; create_group makes one, and {', '.join(WORLD_GROUPS)} are the world")
    return group


def release() -> None:
    """Leaves the cluster in order, as `Cluster.finalize` does."""
    _cluster().finalize()


def get_rank(group: Optional[str] = None) -> int:
    """This process's rank in the group."""
    return _group(group).rank


def get_group_size(group: Optional[str] = None) -> int:
    """How many members the group has."""
    return _group(group).size


def _local_members(group: Group) -> List[int]:
    """The ranks of the members on this process's host, by the hosts' names."""
    host = group.member(group.rank).host
    return [rank for rank, member in enumerate(group.members()) if member.host == host]


def get_local_rank(group: Optional[str] = None) -> int:
    """This process's place among the group's members on its host, in order of rank.

    In the world it is `Cluster.local_rank`. In a group that `create_group` has made, hosts with the same name count as
    one.
    """
    members = _group(group)
    if members is _cluster().world:
        return _cluster().local_rank
    return _local_members(members).index(members.rank)


def get_local_rank_size(group: Optional[str] = None) -> int:
    """How many of the group's members are on this process's host. See `get_local_rank`."""
    if _group(group) is _cluster().world:
        return _cluster().local_size
    return len(_local_members(_group(group)))


def get_world_rank_from_group_rank(group: Optional[str], group_rank_id: int) -> int:
    """The rank in the world of the group's member with this rank."""
    return _group(group).world_rank(group_rank_id)


def get_group_rank_from_world_rank(world_rank_id: int, group: Optional[str] = None) -> int:
    """The rank in the group of the process with this rank in the world."""
    return _group(group).rank_of(world_rank_id)


def get_process_group_ranks(group: Optional[str] = None) -> List[int]:
    """The ranks in the world of the group's members, in order of their rank in the group."""
    members = _group(group)
    return [members.world_rank(rank) for rank in range(members.size)]


def create_group(group: str, rank_ids: Sequence[int]) -> Group:
    """Makes a group of these ranks of the world, under a name, and returns it. Only its members call it."""
    cluster = _cluster()
    groups = _groups.setdefault(cluster, {})
    text_of(group, "group")
    if group in groups or group in WORLD_GROUPS:
        raise InvalidError(f"group: there is one of the name {group!r} already; destroy_group ends it")
    groups[group] = cluster.create_group(rank_ids, tag=group)
    return groups[group]


def destroy_group(group: str) -> None:
    """Ends a group that `create_group` has made. Each member may call it at any time."""
    groups = _groups.get(_cluster(), {})
    if group not in groups:
        raise InvalidError(f"group: {group!r} is none that create_group has made")
    groups.pop(group).free()

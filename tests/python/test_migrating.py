"""docs/migrating.md: our names in it are the header's, and its programs do on four workers what they say."""

import re

import pytest

from cluster import reserved_port
from pages import Page, compiles, paste, prepare
from test_c_api_doc import header

PAGE = Page("docs", "migrating.md")
HALVES, TURNS = PAGE.programs
BUILD_AND_RUN, = PAGE.commands
PATH = "export PATH=$PWD/target/release:$PATH\n"
LIMIT = 120
# Calls of theirs that programs use, by the headings of the page.
MPI = """
Init Init_thread Session_init Query_thread Finalize Initialized Abort Comm_rank Comm_size Get_processor_name Get_version Wtime
Error_string Error_class Comm_set_errhandler Info_create Alloc_mem
COMM_WORLD COMM_SELF COMM_NULL Comm_split Comm_split_type Comm_create Comm_create_group Comm_create_from_group Comm_dup Comm_idup
Comm_free Comm_disconnect Comm_compare Comm_set_attr Comm_group Group_incl Group_translate_ranks Cart_create Graph_create Dims_create
Intercomm_create Intercomm_merge Comm_spawn Comm_accept Comm_connect
Barrier Bcast Reduce Allreduce Reduce_scatter Reduce_scatter_block Gather Gatherv Allgather Allgatherv Scatter Scatterv Alltoall Alltoallv
Alltoallw Iallreduce Scan Exscan Neighbor_allgather Neighbor_alltoall Allreduce_init Start Startall Reduce_local
Send Ssend Bsend Rsend Recv ANY_SOURCE ANY_TAG PROC_NULL Status Get_count Get_elements Sendrecv Sendrecv_replace Probe Iprobe Mprobe
Improbe Mrecv Imrecv Isend Irecv Isendrecv Isendrecv_replace Issend Ibsend Irsend Buffer_attach Send_init Recv_init Psend_init
Test Testall Testany Testsome Wait Waitall Waitany Waitsome Request_free Request_get_status Cancel Test_cancelled REQUEST_NULL Grequest_start
INT FLOAT DOUBLE BYTE CHAR C_DOUBLE_COMPLEX Type_contiguous Type_vector Type_create_struct Type_commit Type_size Pack Unpack
SUM PROD MIN MAX BAND BOR BXOR LAND LOR MAXLOC MINLOC Op_create Op_free
Put Get Win_create Win_allocate_shared Fetch_and_op Compare_and_swap File_open
"""
THEIRS = {
    "From MPI": [f"MPI_{name}" for name in MPI.split()] + ["MPIX_Comm_revoke", "MPIX_Comm_shrink", "MPIX_Comm_agree", "MPIX_Comm_get_failed"],
    "From Gloo": """rendezvous::Store store->set store->get store->wait CreateDevice connectFullMesh makeContext context->rank context->size
        setTimeout closeConnections getPair allreduce reduce allgather allgatherv alltoall alltoallv barrier broadcast gather scatter
        setInputs setTag setAlgorithm setMaxSegmentSize AllreduceRing AllreduceHalvingDoubling ReduceScatterHalvingDoubling
        BroadcastOneToAll BarrierAllToAll PairwiseExchange createUnboundBuffer buffer->send buffer->recv waitSend waitRecv
        abortWaitSend IoException InvalidOperationException""".split(),
    "From MindSpore's cluster": """init release get_rank get_group_size get_local_rank get_local_rank_size create_group destroy_group
        get_process_group_ranks get_world_rank_from_group_rank get_group_rank_from_world_rank HCCL_WORLD_COMM_GROUP comm_func.all_reduce
        comm_func.isend instance Initialize initialized Finalize IsScheduler node node_role node_num port_range PutMetadata GetMetadata
        DeleteMetadata GetHostNames set_abnormal_callback set_cluster_exit_with_exception CreateCommunicationGroup
        DestroyCommunicationGroup GetRankId GetGroupSize GetLocalRankId GetGroupRanks set_need_reinit""".split(),
    "From torch's TCPStore": """TCPStore set get add compare_set append check num_keys list_keys multi_get multi_set wait delete_key set_timeout
        queue_push queue_pop queue_len PrefixStore FileStore HashStore clone DistStoreError""".split(),
}


def runs(folder, name):
    """What four workers print, in order."""
    with reserved_port() as port, paste(PATH + BUILD_AND_RUN.replace("halves", name), folder, port) as shell:
        assert shell.wait(LIMIT) == 0, shell.describe()
        return sorted(re.sub(r"^\[rank \d\] ", "", line) for line in shell.stdout.splitlines())


@pytest.fixture
def folder(tmp_path):
    return prepare(tmp_path, halves=HALVES, turns=TURNS)


def test_our_names_are_those_of_the_header():
    names = set(re.findall(r"\b(?:muster|MUSTER)_\w+", PAGE.text))
    assert len(names) > 80
    assert sorted(names - set(re.findall(r"\b(?:muster|MUSTER)_\w+", header()))) == []


def test_every_row_says_what_becomes_of_a_call():
    rows = [line for line in PAGE.text.splitlines() if line.startswith("| ") and "---" not in line]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert len(rows) > 100
    assert [row for row in cells if len(row) != 3 or not row[0] or not row[1]] == []
    assert [row for row in cells if row[1] == "none" and not row[2]] == []


def lacking(text, names):
    """Those of these names that no row of this text has in its first cell."""
    firsts = " ".join(row.split(" | ")[0] for row in text.splitlines() if row.startswith("| "))
    return [name for name in names if not re.search(rf"(?<![\w-]){re.escape(name)}(?!\w)", firsts)]


@pytest.mark.parametrize("title", THEIRS)
def test_each_call_of_theirs_has_a_row(title):
    section = re.split(r"^## (.*)\n", PAGE.text, flags=re.M)
    assert lacking(section[section.index(title) + 1], THEIRS[title]) == []


def test_a_call_without_a_row_is_found():
    assert lacking("| `MPI_Waitall` | ours | MPI_Wait |\n", ["MPI_Wait", "MPI_Waitall"]) == ["MPI_Wait"]


def test_halves_add_up_and_messages_come_from_the_left(folder):
    compiles(folder, "halves")
    sums, size = [1, 1, 5, 5], 4
    assert runs(folder, "halves") == [
        f"rank {rank}: my half adds up to {sums[rank]}, that of rank {(rank - 1) % size} to {sums[rank - 1]}" for rank in range(size)
    ]


def test_one_rank_is_first_and_all_wait_for_all(folder):
    compiles(folder, "turns")
    assert runs(folder, "turns") == ["another rank was first"] * 3 + ["one rank was first"]

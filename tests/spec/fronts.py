"""What speaks HTTP in the tests of the contract: our own listener, and the application of `decided.asgi` under others.

A test runs with all of them, but for those below: what they are about is decided before the application is asked, or in
the process around it. Of some tests only single cases are left out.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from tests.support.server import OWN

UVICORN, HYPERCORN = "uvicorn", "hypercorn"
OTHERS = (UVICORN, HYPERCORN)
FRONTS = (OWN, *OTHERS)


class LeftOut(NamedTuple):
    reason: str
    fronts: tuple[str, ...]
    tests: tuple[str, ...]
    """As `module.test`; `module.test[case]` for one case of it, `module` for all that is in it."""


LEFT_OUT = [
    LeftOut(
        "what a body means, once it was read, is decided behind the seam: whatever carried it, the code is the same",
        OTHERS,
        ("test_answers", "test_bodies", "test_request"),
    ),
    LeftOut(
        "bytes that are not HTTP, or that two readers could take for two requests, are refused by the server in words "
        "of its own, and the application never hears of them",
        OTHERS,
        (
            "test_capacity.test_a_place_is_free_at_once_after[_broken_chunk]",
            "test_connections.test_headers_without_end_get_the_error_body",
            "test_connections.test_what_was_asked_before_the_noise_is_answered",
            "test_logs.test_what_is_no_http_has_its_line_as_well",
            "test_wire.test_a_broken_chunk_is_a_bad_request",
            "test_wire.test_a_length_beside_chunks_is_a_bad_request",
            "test_wire.test_a_length_that_is_no_number_is_a_bad_request",
            "test_wire.test_much_noise_is_one_bad_request",
            "test_wire.test_two_lengths_are_a_bad_request",
            "test_wire.test_what_is_no_http_gets_the_error_body_too",
        ),
    ),
    LeftOut(
        "the same; hypercorn hands these on",
        (UVICORN,),
        (
            "test_limits.test_an_absurd_length_is_too_large_or_unreadable",
            "test_wire.test_a_length_that_is_too_short_leaves_an_unreadable_body",
            "test_wire.test_connect_is_refused_in_words",
        ),
    ),
    LeftOut(
        "with a further request already on the connection, the server reads nothing, not even that the client has left",
        OTHERS,
        ("test_capacity.test_a_place_is_free_at_once_after[_left_with_more_asked]",),
    ),
    LeftOut(
        "signals, and the address that is listened on, are the server's",
        OTHERS,
        (
            "test_auth.test_sighup_without_a_key_file_changes_nothing",
            "test_lifecycle.test_a_start_on_loopback_needs_no_warning",
            "test_lifecycle.test_an_idle_connection_is_kept_for_more_than_30_seconds",
        ),
    ),
    LeftOut(
        "uvicorn takes trailers for headers",
        (UVICORN,),
        ("test_wire.test_a_trailer_is_no_header",),
    ),
    LeftOut(
        "uvicorn sends chunks to HTTP/1.0 as well",
        (UVICORN,),
        ("test_batch_stream.test_http_1_0_gets_the_lines_without_chunks",),
    ),
    LeftOut(
        "uvicorn with httptools loses the body of a request that offers another protocol",
        (UVICORN,),
        ("test_connections.test_an_offer_of_another_protocol_is_ignored",),
    ),
    LeftOut(
        "hypercorn invites every body as soon as its head is there",
        (HYPERCORN,),
        (
            "test_capacity.test_a_place_is_taken_before_the_body_is_read",
            "test_wire.test_a_client_that_expects_is_refused_before_it_sends",
        ),
    ),
    LeftOut(
        "hypercorn takes a whole address for a path",
        (HYPERCORN,),
        ("test_connections.test_a_target_may_be_a_whole_address",),
    ),
    LeftOut(
        "hypercorn has log lines of its own, which are text",
        (HYPERCORN,),
        ("test_logs.test_every_line_of_the_json_format_parses",),
    ),
]


def fronts_for(test: Callable[..., Any]) -> list[str]:
    module = test.__module__.rpartition(".")[2]
    names = {module, f"{module}.{test.__name__}"}
    return [front for front in FRONTS if not any(names & {*left.tests} for left in LEFT_OUT if front in left.fronts)]


def is_left_out(module: str, case: str) -> bool:
    """Whether this very case, as pytest names it, is left out with the front that its name begins with."""
    test, _, inside = case.rstrip("]").partition("[")
    front, _, rest = inside.partition("-")
    return any(f"{module}.{test}[{rest}]" in left.tests for left in LEFT_OUT if front in left.fronts)

#!/usr/bin/python3
"""Runs the integration tests: the real broker, real clients.

    tests/integration/run.py [--binary build/release/tarry] [--filter WORDS] [--jobs N] [--keep] [--list]
    tests/integration/run.py --against HOST:PORT     # only what holds for every Kafka broker

Ends with one line: N passed, N failed[, N skipped].
"""

import argparse
import concurrent.futures
import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1] / "hostile"))
import harness  # noqa: E402
import test_recipes  # noqa: E402,F401  (They begin first, because they compile and wait longest.)
import test_admin_http  # noqa: E402,F401
import test_attacks  # noqa: E402,F401
import test_backup  # noqa: E402,F401
import test_bench  # noqa: E402,F401
import test_cli  # noqa: E402,F401
import test_clients  # noqa: E402,F401
import test_control  # noqa: E402,F401
import test_delayed  # noqa: E402,F401
import test_explain  # noqa: E402,F401
import test_faults  # noqa: E402,F401
import test_group_cli  # noqa: E402,F401
import test_groups  # noqa: E402,F401
import test_hostile  # noqa: E402,F401
import test_idle  # noqa: E402,F401
import test_import  # noqa: E402,F401
import test_install  # noqa: E402,F401
import test_kafka_tools  # noqa: E402,F401
import test_kill  # noqa: E402,F401
import test_operator  # noqa: E402,F401
import test_package  # noqa: E402,F401
import test_page  # noqa: E402,F401
import test_protocol  # noqa: E402,F401
import test_quickstart  # noqa: E402,F401
import test_quotas  # noqa: E402,F401
import test_relay  # noqa: E402,F401
import test_repair  # noqa: E402,F401
import test_sasl_ssl  # noqa: E402,F401
import test_security  # noqa: E402,F401
import test_settings  # noqa: E402,F401
import test_terminal  # noqa: E402,F401
import test_tls  # noqa: E402,F401


def main():
    parser = argparse.ArgumentParser(description="the integration tests of Tarry")
    parser.add_argument("--binary", default=harness.ROOT / "build/release/tarry")
    parser.add_argument("--filter", default="", help="only cases whose name contains this")
    parser.add_argument("--against", metavar="HOST:PORT", help="a running broker, of any implementation")
    parser.add_argument("--jobs", type=int, default=3 * (os.cpu_count() or 1), help="number of cases that run at the same time")
    parser.add_argument("--keep", action="store_true", help="keep the directories of failed cases")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    options.binary = pathlib.Path(options.binary).resolve()

    chosen = [each for each in harness.CASES
              if options.filter.lower() in each.name.lower() and (each.any_broker or not options.against)]
    if options.list:
        print("\n".join(map(str, chosen)))
        return 0
    if not options.against and not options.binary.exists():
        print(f"no {options.binary}: cmake --preset release && ninja -C build/release tarry", file=sys.stderr)
        return 1

    started, counts = time.monotonic(), {"passed": 0, "failed": 0, "skipped": 0}

    def tell(outcome):
        counts[outcome.state] += 1
        print(f"{outcome.state:7} {outcome.seconds:5.1f} s  {outcome.case.name}", flush=True)
        if outcome.text:
            print("\n".join("            " + line for line in outcome.text.splitlines()), flush=True)

    def work(cases, jobs):
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            for done in concurrent.futures.as_completed([pool.submit(harness.run_case, each, options) for each in cases]):
                tell(done.result())

    # Those that measure time come last, one after the other, on a machine that is otherwise quiet;
    # before them those that watch a broker do nothing, all at once.
    work([each for each in chosen if not (each.alone or each.idle)], options.jobs)
    idle = [each for each in chosen if each.idle]
    work(idle, len(idle) or 1)
    work([each for each in chosen if each.alone], 1)
    print(f"{len(chosen)} cases in {time.monotonic() - started:.0f} s")
    print(f"{counts['passed']} passed, {counts['failed']} failed"
          + (f", {counts['skipped']} skipped" if counts["skipped"] else ""))
    return 1 if counts["failed"] or not counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())

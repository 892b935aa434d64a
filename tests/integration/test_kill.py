"""kill -9 at random moments, in a size that fits into every test run; kill_test.py by hand for more."""

import os

import kill_test
from harness import Skip, case


@case("kill -9 at random moments: 0 lost, 0 twice, 0 early, equal due times in order", alone=True)
def _(ctx):
    try:
        import confluent_kafka  # noqa: F401
    except ImportError:
        raise Skip("no confluent_kafka here: apt-get install python3-confluent-kafka") from None
    directory = ctx.directory / "killed"
    directory.mkdir()
    said = []
    report = kill_test.torture(ctx.options.binary, directory, records=10_000, kills=20,
                               seed=int.from_bytes(os.urandom(4), "big"), seconds=20, tell=said.append)
    print(f"             {said[-1]}")
    assert report["ok"], "\n".join(map(str, said))

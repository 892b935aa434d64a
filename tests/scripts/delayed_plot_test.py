#!/usr/bin/env python3
"""What bench/delayed_plot.py makes of what a load driver for another system has told."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import delayed_plot

BURST = {"test": "burst", "n": 1000, "received": 1000, "missing": 0, "first_ms": 2.5, "half_ms": 40.0, "p99_ms": 70.0, "all_ms": 71.0}


class Peer(unittest.TestCase):
    def test_a_burst_without_points_has_its_first_median_99th_and_last_message(self):
        self.assertEqual(delayed_plot.peer("P", [BURST]), {"name": "P", "burst": {
            "records": 1000, "points": [[2.5, 1], [40.0, 500], [70.0, 990], [71.0, 1000]]}})

    def test_a_burst_with_points_has_these(self):
        points = [[3.0, 12], [71.0, 1000]]
        self.assertEqual(delayed_plot.peer("P", [{**BURST, "points": points}])["burst"]["points"], points)

    def test_memory_is_what_it_was_when_a_number_of_messages_was_seen_last(self):
        told = {"test": "standing", "n": 400, "anon_after_mb": 9.0, "memory": [[100, 4.0], [200, 6.0], [300, 11.0], [300, 10.0]]}
        self.assertEqual(delayed_plot.peer("P", [told])["memory"], [[100, 4.0], [200, 6.0], [300, 10.0]])

    def test_memory_without_points_is_the_one_at_the_end(self):
        self.assertEqual(delayed_plot.peer("P", [{"test": "standing", "n": 400, "anon_after_mb": 9.0}])["memory"], [[400, 9.0]])

    def test_a_burst_that_did_not_come_whole_is_refused(self):
        with self.assertRaisesRegex(SystemExit, "P: 999 of 1000"):
            delayed_plot.peer("P", [{**BURST, "received": 999, "missing": 1}])

    def test_a_run_that_failed_is_refused(self):
        with self.assertRaisesRegex(SystemExit, "P: not ready"):
            delayed_plot.peer("P", [{"test": "burst", "failed": "not ready"}])


class Thinned(unittest.TestCase):
    def test_what_lies_close_to_the_one_before_is_left_out_but_for_the_last(self):
        self.assertEqual(delayed_plot.thinned([(0, 0), (1, 0), (2, 0), (2, 5), (3, 5)]), [(0, 0), (2, 0), (2, 5), (3, 5)])


if __name__ == "__main__":
    unittest.main()

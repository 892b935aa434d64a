// All pending records on one axis of time, as the wheel sees it: from now to months ahead, each level 256 times
// as long as the one below; what is due soon is in memory, the rest on disk.
//
//     level 0 | level 1       | level 2           | level 3
//     .       :        .:     : .:||:.            | .:||||:.     <- records in a second, minute, hour, day
//     now     1 s    10 s   1 min    10 min   1 h | 6 h  1 d ...
//     [ in memory ................................][ on disk ... ]

import { el, svg } from "./dom.js";
import { compact, duration, integer, nearTime } from "./format.js";

const height = 176;
const plot = { top: 24, bottom: 38 };
const longest = 62 * 86_400_000;
// Below this the axis is nearly linear, so that now has a place on it.
const shortest = 100;
const ticks = [[1000, "1 s"], [10_000, "10 s"], [60_000, "1 min"], [600_000, "10 min"], [3_600_000, "1 h"], [21_600_000, "6 h"], [86_400_000, "1 d"], [7 * 86_400_000, "1 week"], [30 * 86_400_000, "1 month"]];

export class WheelPicture {
  constructor() {
    this.node = el("div", { class: "wheel-picture", role: "img" });
    this.data = null;
    new ResizeObserver(() => this.#draw()).observe(this.node);
  }

  // {wheel, due, now, levels: [{level, tick_ms, timers, buckets_in_use}]}
  update(data) {
    this.data = data;
    this.#draw();
  }

  #draw() {
    const width = this.node.clientWidth;
    if (!this.data || width < 50) return;
    const { wheel, due, now, levels } = this.data;
    const scale = (ms) => Math.log10(1 + Math.max(0, ms) / shortest) / Math.log10(1 + longest / shortest) * width;
    const base = height - plot.bottom;
    const room = base - plot.top - 6;
    const parts = [];

    // The levels of the wheel, each as far as its buckets reach.
    let left = 0;
    for (let level = 0; level < 4; ++level) {
      const right = Math.min(width, scale(256 ** (level + 1)));
      const used = levels.find((each) => each.level === level);
      parts.push(svg("rect", { class: `band band-${level % 2}`, x: left, y: plot.top - 2, width: Math.max(0, right - left), height: base - plot.top + 2 }));
      const narrow = right - left < 120;
      parts.push(text(left + 4, 13, narrow ? `${level}` : `level ${level}`, "level-name"));
      if (used?.timers && !narrow) parts.push(text(right - 6, 13, compact(used.timers), "level-count", "end"));
      left = right;
    }

    const bars = buckets(due, now);
    const most = Math.max(1, ...bars.map(({ count }) => count));
    const edge = Math.min(...wheel.shards.map(({ delayed }) => delayed.in_memory_until_ms ?? Infinity));
    for (const { from, to, count } of bars) {
      if (!count) continue;
      const [start, end] = [scale(from), Math.min(width, scale(to))];
      const tall = Math.max(2, Math.log10(1 + count) / Math.log10(1 + most) * room);
      parts.push(svg("rect", { class: now + from < edge ? "in-memory" : "on-disk", x: start.toFixed(1), y: (base - tall).toFixed(1), width: Math.max(1, end - start - (end - start > 4 ? 1 : 0.2)).toFixed(1), height: tall.toFixed(1) },
        svg("title", {}, `${nearTime(now + from, now)}, ${duration(Math.round((to - from) / 1000) * 1000)}: ${integer(count)}`)));
    }

    parts.push(svg("line", { class: "axis", x1: 0, x2: width, y1: base, y2: base }));
    let last = 24;
    parts.push(text(0, base + 13, "now", "tick"));
    for (const [ms, name] of ticks) {
      const x = scale(ms);
      if (x - last < 34 || x > width - 24) continue;
      parts.push(svg("line", { class: "axis", x1: x, x2: x, y1: base, y2: base + 3 }), text(x, base + 13, name, "tick", "middle"));
      last = x;
    }
    if (Number.isFinite(edge)) {
      const x = Math.min(width, scale(edge - now));
      parts.push(svg("rect", { class: "memory-line", x: 0, y: height - 18, width: Math.max(2, x - 1), height: 3, rx: 1.5 }),
        svg("rect", { class: "disk-line", x: x + 1, y: height - 18, width: Math.max(0, width - x - 1), height: 3, rx: 1.5 }),
        text(0, height - 4, `in memory ${compact(wheel.memory.records)}`, "memory-name"),
        text(width, height - 4, `on disk ${compact(wheel.disk.records)}`, "disk-name", "end"));
    }
    this.node.replaceChildren(svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" }, parts));
    this.node.setAttribute("aria-label", `Pending records by due time: ${integer(wheel.memory.records)} in memory, ${integer(wheel.disk.records)} on disk only. ${Number.isFinite(edge) ? `All that is due within ${duration(edge - now)} is in memory.` : ""}`);
  }
}

// Seconds, then minutes, hours and days, each where the finer ones end.
function buckets(due, now) {
  const found = [];
  let covered = 0;
  for (const name of ["minute", "hour", "day", "month"]) {
    const span = due?.spans.find((each) => each.span === name);
    if (!span || span.counts === null) continue;
    const rows = [...Object.values(span.counts), span.other ?? []];
    const length = Math.max(...rows.map((row) => row.length));
    for (let place = 0; place < length; ++place) {
      const from = span.from + place * span.bucket_ms - now;
      const to = Math.min(from + span.bucket_ms, span.until - now);
      if (to <= covered) continue;
      let count = rows.reduce((sum, row) => sum + (row[place] ?? 0), 0);
      // The bucket in which the finer ones end shows only the rest.
      if (from < covered) for (const finer of found) if (finer.from >= from) count -= finer.count;
      found.push({ from: Math.max(0, from, covered), to, count: Math.max(0, count) });
    }
    covered = Math.max(covered, span.until - now);
  }
  if (due?.later) found.push({ from: covered, to: longest, count: due.later });
  return found;
}

function text(x, y, words, name, anchor = "start") {
  return svg("text", { x, y, class: name, "text-anchor": anchor }, words);
}

// Requests that are parked until something happens or their time is over.

import { get } from "./api.js";
import { Table, el, svg, setHidden, setText } from "./dom.js";
import { integer, milliseconds } from "./format.js";
import { Figures, Poll } from "./parts.js";

export function purgatoryView(section) {
  const figures = new Figures([
    ["waiting", "Waiting", "Parked now"], ["queued", "Queued"], ["satisfied", "Satisfied", "Since the start"], ["expired", "Expired", "Their deadline has passed"],
    ["at-once", "Answered at once", "Without being parked"], ["late", "Largest lateness", "The longest time past a deadline, in the last minutes"],
  ]);
  const count = (name) => (kind) => integer(kind[name]);
  const table = new Table([
    { head: "Request", class: "name", cell: ({ kind }) => kind.replaceAll("_", " ") },
    { head: "Waiting", class: "number", cell: ({ waiting }) => (waiting ? el("b", {}, integer(waiting)) : "0") },
    { head: "Started", class: "number", cell: count("started") },
    { head: "At once", class: "number", hint: "Answered without being parked", cell: count("answered_at_once") },
    { head: "Satisfied", class: "number", cell: count("satisfied") },
    { head: "Expired", class: "number", cell: count("expired") },
    { head: "Cancelled", class: "number", cell: ({ cancelled, withdrawn }) => integer(cancelled + withdrawn) },
    { head: "Waited p50", class: "number", hint: "In the last minutes", cell: ({ waited_ms }) => (waited_ms.recent.count ? milliseconds(waited_ms.recent.p50) : "–") },
    { head: "p99", class: "number", cell: ({ waited_ms }) => (waited_ms.recent.count ? milliseconds(waited_ms.recent.p99) : "–") },
    { head: "Late p99", class: "number", hint: "Time past the deadline, of expired requests", cell: ({ late_ms }) => (late_ms.recent.count ? milliseconds(late_ms.recent.p99) : "–") },
    { head: "How long they waited", class: "histogram-cell", hint: "Since the start: a bar for each range of times, from 1 ms to a minute and more", cell: ({ waited_ms }) => histogram(waited_ms.buckets) },
  ], { key: ({ kind }) => kind, caption: "Parked requests by kind" });
  const idle = el("p", { class: "summary" });
  const empty = el("p", { class: "empty-note", hidden: true }, "No request has been parked since the start.");
  const what = el("p", { class: "summary" }, "Requests of clients that wait for something: a fetch for records, a join for other members, a commit for the disk. Pending records are not among them.");
  section.append(what, figures.node, table.node, empty, idle);

  const poll = new Poll(async (signal) => {
    const kinds = Object.entries(await get("/purgatory", { signal })).map(([kind, figuresOf]) => ({ kind, ...figuresOf }));
    const used = kinds.filter(({ started }) => started > 0).sort((a, b) => b.started - a.started);
    table.update(used);
    setHidden(table.node, used.length === 0);
    setHidden(empty, used.length > 0);
    const rest = kinds.filter(({ started }) => started === 0).map(({ kind }) => kind.replaceAll("_", " "));
    setText(idle, rest.length && used.length ? `Not used since the start: ${rest.join(", ")}.` : "");
    const total = (name) => kinds.reduce((sum, kind) => sum + kind[name], 0);
    for (const name of ["waiting", "queued", "satisfied", "expired"]) figures.set(name, integer(total(name)));
    figures.set("at-once", integer(total("answered_at_once")));
    const late = kinds.filter(({ late_ms }) => late_ms.recent.count).map(({ late_ms }) => late_ms.recent.max);
    figures.set("late", late.length ? milliseconds(Math.max(...late)) : "–");
  }, 2000);
  return { show: (_parts, _parameters, changed) => changed && poll.start(), hide: () => poll.stop() };
}

// Buckets of an eighth are gathered into powers of two: 1 ms, 2 ms, up to a minute and more.
const powers = 17;
function histogram(buckets) {
  const counts = Array(powers).fill(0);
  for (const { le, count } of buckets) counts[Math.min(powers - 1, Math.max(0, Math.ceil(Math.log2(Math.max(1, le)))))] += count;
  const most = Math.max(1, ...counts);
  return svg("svg", { class: "histogram", viewBox: `0 0 ${powers * 6} 18`, width: powers * 6, height: 18, role: "img", "aria-label": "times of waiting" },
    counts.map((count, place) => svg("rect", { x: place * 6, y: count ? 17 - 16 * Math.max(0.08, count / most) : 17, width: 5, height: count ? 16 * Math.max(0.08, count / most) + 1 : 1, class: count ? "full" : "none" },
      svg("title", {}, `${place === 0 ? "up to 1 ms" : `up to ${milliseconds(2 ** place)}`}: ${integer(count)}`))));
}

// Records whose due time has passed, and how late deliveries are.

import { get } from "./api.js";
import { Lines, legend } from "./charts.js";
import { el, reconcile, setHidden, setText, visible } from "./dom.js";
import { decimal, duration, integer, milliseconds, rate } from "./format.js";
import { setAside } from "./health.js";
import { isStuck, lastRate, live, stuck_ms, whyLate } from "./live.js";
import * as panel from "./panel.js";
import { Figures, Poll, card, lengthChoice, whysOverdue } from "./parts.js";
import { openRecord, recordHash, recordOf, sameRecord } from "./record.js";
import { RecordList } from "./records.js";

const shown = 100;
// Partitions that are named with what is wrong.  Each topic is asked for that once in a while, for all of its partitions: the answer is as long as the topic.
const listed_troubles = 8;
const why_again_ms = 60_000;

export function overdueView(section) {
  const figures = new Figures([
    ["overdue-now", "Overdue", "Due, but not in the log yet"], ["oldest", "Oldest", "How long the oldest of them has been due"],
    ["delivered-rate", "Delivered"], ["delivered-total", "In total", "Delivered since the start of the broker"],
    ["lag-p50", "Late p50, last 5 min", "For records delivered in the last five minutes: the time from the due time until the record was durable in the log. Overdue records count when they are delivered"], ["lag-p99", "Late p99"], ["lag-max", "Late, at most"],
    ["early", "Early", "Deliveries before the due time: there must be none"],
  ]);
  const lagSeries = [
    { name: "max", colour: "--series-2", read: (point) => point.max || null },
    { name: "p99", colour: "--series-1", read: (point) => point.p99 || null },
    { name: "p50", colour: "--series-0", read: (point) => point.p50 || null },
  ];
  const lag = new Lines({ label: "How late deliveries were", series: lagSeries, text: (ms) => milliseconds(ms), isLogarithmic: true, least: 0.1 });
  const overdue = new Lines({ label: "Overdue records", series: [{ name: "overdue", colour: "--series-2", read: (point) => point.overdue, fill: true }], least: 4 });
  const delivered = new Lines({ label: "Deliveries per second", series: [{ name: "delivered", colour: "--series-3", read: (point) => point.delivered, fill: true }], text: (n) => rate(n), least: 4 });
  const keys = el("ul", { class: "legend" });
  legend(keys, lagSeries);

  const list = new RecordList({ label: "Overdue records", onOpen: (record) => { location.hash = recordHash("overdue", record); } });
  const troubles = el("ul", { class: "troubles", role: "status", "aria-label": "Partitions with overdue records" });
  const behind = el("p", { class: "trouble-line", role: "status", hidden: true, data: { figure: "why" } });
  const empty = el("p", { class: "empty-note" }, "No record is overdue: every record that was due is in its log.");
  const summary = el("p", { class: "summary", role: "status" });
  const lengths = lengthChoice(draw);
  section.append(figures.node, behind, troubles, lengths.node,
    el("div", { class: "cards three" },
      card("Late by", el("div", { class: "chart-holder" }, lag.node), { extra: keys }),
      card("Overdue", el("div", { class: "chart-holder" }, overdue.node)),
      card("Delivered per second", el("div", { class: "chart-holder" }, delivered.node))),
    el("div", { class: "list-head" }, el("h2", {}, "Overdue records"), summary), list.node, empty);

  let opened = null;
  function showRecord(record) {
    if (sameRecord(opened, record) && panel.isOpen()) return;
    opened = record;
    list.mark(record.handle);
    openRecord(record, {
      known: list.records.find(({ handle }) => handle === record.handle) ?? null,
      onChange: () => poll.start(),
      onClose: () => {
        if (opened !== record) return;
        opened = null;
        list.mark(null);
        if (location.hash.startsWith("#overdue/")) history.replaceState(null, "", "#overdue");
      },
    });
  }

  // Those whose oldest record waits for longer than a busy broker lets it wait.
  const asked = new Map();  // By topic: {at, whys}.
  live.addEventListener("restart", () => asked.clear());
  function sayWhy(records, hasMore) {
    const now = live.now();
    const stuck = new Map();
    for (const record of records) {
      const name = `${record.topic}/${record.partition}`;
      const known = stuck.get(name) ?? { name, topic: record.topic, partition: record.partition, count: 0, oldest: record.due_ms };
      known.count += 1;
      stuck.set(name, known);
    }
    const named = [...stuck.values()].filter((each) => now - each.oldest > stuck_ms).slice(0, listed_troubles);
    for (const topic of new Set(named.map((each) => each.topic))) {
      const known = asked.get(topic);
      if (known && now - known.at < why_again_ms) continue;
      asked.set(topic, { at: now, whys: known?.whys });
      whysOverdue(topic).then((whys) => asked.set(topic, { at: now, whys }));
    }
    const stuckTopics = new Set([...stuck.values()].map(({ topic }) => topic));
    for (const topic of asked.keys()) if (!stuckTopics.has(topic)) asked.delete(topic);
    const aside = live.status ? setAside(live.status) : [];
    const isAside = new Set(aside.map((each) => `${each.topic}/${each.partition}`));
    const lines = [...aside.slice(0, listed_troubles).map((each) => ({ name: `${each.topic}/${each.partition}`, ...each })), ...named.filter(({ name }) => !isAside.has(name))];
    reconcile(troubles, lines, ({ name }) => name, () => el("li", { class: "trouble-line" }), (node, { topic, partition, count, oldest: first, text }) => {
      const whys = asked.get(topic)?.whys;
      const why = whys ? whys(partition) : undefined;
      setText(node, text ?? `${visible(topic)}, partition ${partition}: ${integer(count)}${hasMore ? " or more" : ""} overdue, the oldest for ${duration(now - first)}. ${
        why ? `The partition ${why}.` : why === null ? "Nothing is wrong with the partition." : ""}`);
    });
  }

  let oldest = null;
  const poll = new Poll(async (signal) => {
    const { records, next } = await get(`/delayed?to=${Math.round(live.now())}&limit=${shown}`, { signal }).catch((error) => {
      // What is known of partitions out of service is said even if their records cannot be listed.
      if (error.name !== "AbortError") sayWhy([], false);
      throw error;
    });
    oldest = records[0]?.due_ms ?? null;
    list.update(records);
    if (opened) list.mark(opened.handle);
    sayWhy(records, next !== null);
    setHidden(list.node, records.length === 0);
    setHidden(empty, records.length > 0 || (live.status?.delayed.out_of_service ?? 0) > 0);
    setText(summary, records.length && next ? `the first ${integer(records.length)}` : "");
    draw();
  }, 2000);

  function draw() {
    const { status } = live;
    if (!status) return;
    const { delayed } = status;
    figures.set("overdue-now", integer(delayed.overdue), delayed.overdue ? "warn" : "");
    figures.set("oldest", oldest === null || !delayed.overdue ? "–" : duration(Math.max(0, live.now() - oldest)), oldest !== null && live.now() - oldest > 5000 ? "warn" : "");
    const why = isStuck() ? whyLate() : "";
    setText(behind, why);
    setHidden(behind, !why);
    const { lag_ms } = delayed;
    for (const name of ["p50", "p99", "max"]) figures.set(`lag-${name}`, lag_ms.count ? milliseconds(lag_ms[name]) : "–");
    figures.set("delivered-rate", rate(lastRate("delivered")));
    figures.set("delivered-total", integer(delayed.delivered_total));
    figures.set("early", decimal(delayed.early_total), delayed.early_total ? "warn" : "");
    const now = live.now();
    lengths.update();
    for (const chart of [lag, overdue, delivered]) chart.update(live.history, now);
  }
  return {
    show(parts, _parameters, changed) {
      if (changed) poll.start();
      const record = recordOf(parts);
      if (record) showRecord(record);
      else panel.close();
    },
    hide() {
      opened = null;
      poll.stop();
    },
    focusFirst: () => list.focusFirst(),
    draw,
  };
}

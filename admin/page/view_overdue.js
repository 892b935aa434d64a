// Records whose due time has passed, and how late deliveries are.

import { get } from "./api.js";
import { Lines, legend } from "./charts.js";
import { el, setHidden, setText } from "./dom.js";
import { decimal, duration, integer, milliseconds, rate } from "./format.js";
import { lastRate, live } from "./live.js";
import { Figures, Poll, card } from "./parts.js";
import { openRecord } from "./record.js";
import { RecordList } from "./records.js";

const shown = 100;

export function overdueView(section) {
  const figures = new Figures([
    ["overdue-now", "Overdue", "Due, but not in the log yet"], ["oldest", "Oldest", "How long the oldest of them has been due"],
    ["lag-p50", "Lag p50", "From the due time until the record is durable in the log; the last five minutes"], ["lag-p99", "Lag p99"], ["lag-max", "Lag max"],
    ["delivered-rate", "Delivered"], ["delivered-total", "Delivered in total", "Since the start of the broker"], ["early", "Early", "Deliveries before the due time: there must be none"],
  ]);
  const lagSeries = [
    { name: "max", colour: "--series-2", read: (point) => point.max || null },
    { name: "p99", colour: "--series-1", read: (point) => point.p99 || null },
    { name: "p50", colour: "--series-0", read: (point) => point.p50 || null },
  ];
  const lag = new Lines({ label: "Lag of deliveries", series: lagSeries, text: (ms) => milliseconds(ms), isLogarithmic: true, least: 0.1 });
  const overdue = new Lines({ label: "Overdue records", series: [{ name: "overdue", colour: "--series-2", read: (point) => point.overdue, fill: true }], least: 4 });
  const delivered = new Lines({ label: "Deliveries per second", series: [{ name: "delivered", colour: "--series-3", read: (point) => point.delivered, fill: true }], text: (n) => rate(n), least: 4 });
  const keys = el("ul", { class: "legend" });
  legend(keys, lagSeries);

  const list = new RecordList({ label: "Overdue records", onOpen: (record) => openRecord(record, { known: record, onChange: () => poll.start() }) });
  const empty = el("p", { class: "empty-note" }, "No record is overdue: every record that was due is in its log.");
  const summary = el("p", { class: "summary", role: "status" });
  section.append(figures.node,
    el("div", { class: "cards three" },
      card("Lag", el("div", { class: "chart-holder" }, lag.node), { extra: keys }),
      card("Overdue", el("div", { class: "chart-holder" }, overdue.node)),
      card("Delivered per second", el("div", { class: "chart-holder" }, delivered.node))),
    el("div", { class: "list-head" }, el("h2", {}, "Overdue records"), summary), list.node, empty);

  let oldest = null;
  const poll = new Poll(async (signal) => {
    const { records, next } = await get(`/delayed?to=${Math.round(live.now())}&limit=${shown}`, { signal });
    oldest = records[0]?.due_ms ?? null;
    list.update(records);
    setHidden(list.node, records.length === 0);
    setHidden(empty, records.length > 0);
    setText(summary, records.length && next ? `the first ${integer(records.length)}` : "");
    draw();
  }, 2000);

  function draw() {
    const { status } = live;
    if (!status) return;
    const { delayed } = status;
    figures.set("overdue-now", integer(delayed.overdue), delayed.overdue ? "warn" : "");
    figures.set("oldest", oldest === null || !delayed.overdue ? "–" : duration(Math.max(0, live.now() - oldest)), oldest !== null && live.now() - oldest > 5000 ? "warn" : "");
    const { lag_ms } = delayed;
    for (const name of ["p50", "p99", "max"]) figures.set(`lag-${name}`, lag_ms.count ? milliseconds(lag_ms[name]) : "–");
    figures.set("delivered-rate", rate(lastRate("delivered")));
    figures.set("delivered-total", integer(delayed.delivered_total));
    figures.set("early", decimal(delayed.early_total), delayed.early_total ? "warn" : "");
    const now = live.now();
    for (const chart of [lag, overdue, delivered]) chart.update(live.history, now);
  }
  return { show: (_parts, _parameters, changed) => changed && poll.start(), hide: () => poll.stop(), draw };
}

// The machine's side: throughput, disk, memory and clients, by shard.

import { Lines, legend } from "./charts.js";
import { Table, el, setHidden, setText } from "./dom.js";
import { bytes, decimalBytes, duration, integer, milliseconds, nearTime, rate } from "./format.js";
import { diskTrend, isMemoryShort } from "./health.js";
import { lastRate, live } from "./live.js";
import { diskParts, memoryParts } from "./resources.js";
import { Figures, card, isDiskShort, lengthChoice, meter, tightest } from "./parts.js";

// When no records are accepted any more if it goes on as in the last hour.
function fullIn(trend) {
  if (!trend) return "no trend yet";
  return trend.left === null ? `not filling in the last ${duration(trend.length)}` : `full in about ${duration(trend.left)} at the rate of the last ${duration(trend.length)}`;
}

// Of the copies that `tarry backup` makes; others, such as snapshots of the disk, the broker does not know.
const lastBackup = ({ last_backup_ms: at }, now) => (at === null || at === undefined ? "none since the start of the broker" : `${nearTime(at, now)}, ${duration(Math.max(0, now - at))} ago`);

export function shardsView(section) {
  const figures = new Figures([
    ["requests", "Requests"], ["connections", "Clients", "Client connections, and the limit"], ["cpu", "Processor", "100 % is one core"], ["memory", "Memory", "The resident memory of the process"], ["client-memory", "For clients", "The memory used for clients, and its limit (tarry.memory.bytes): near it, the connections that use the most are closed"],
    ["files", "Open files"], ["journal", "Journal"], ["round", "Journal round p99", "Write and sync"], ["stored", "Data directory", "The size of all its files, of which pending records are a part"], ["pending-stored", "Pending on disk", "The size of the store's compressed files. They include cancelled records whose space is not freed yet, but not the records that only the journal has"],
    ["free", "Free on disk", "On the file system of the data directory or of log.dirs, whichever has less"],
  ]);
  const disk = el("div", { class: "disk" });
  const bytesSeries = [
    { name: "received", colour: "--series-0", read: (point) => point.received },
    { name: "sent", colour: "--series-2", read: (point) => point.sent },
  ];
  const keys = el("ul", { class: "legend" });
  legend(keys, bytesSeries);
  const line = (label, name, colour, text) => new Lines({ label, series: [{ name: label, colour, read: (point) => point[name], fill: true }], text, least: name === "journal" ? 1000 : 4 });
  const charts = [
    ["Requests per second", line("requests", "requests", "--series-0", (n) => rate(n))],
    ["Bytes per second", new Lines({ label: "bytes received and sent", series: bytesSeries, text: (n) => `${decimalBytes(n)}/s`, least: 1000 }), keys],
    ["Records appended per second", line("appended", "appended", "--series-4", (n) => rate(n))],
    ["Delivered per second", line("delivered", "delivered", "--series-3", (n) => rate(n))],
    ["Journal", line("journal", "journal", "--series-6", (n) => `${decimalBytes(n)}/s`)],
    ["Syncs per second", line("syncs", "fsyncs", "--series-1", (n) => rate(n))],
  ];
  // Rates of a shard, between the last two figures.
  const perSecond = (name, text = rate) => ({ shard, [name]: now }) => {
    const then = live.before?.shards.find((each) => each.shard === shard)?.[name];
    return live.seconds === null || then === undefined || now < then ? "–" : text((now - then) / live.seconds);
  };
  const table = new Table([
    { head: "Shard", class: "name", cell: ({ shard }) => shard },
    { head: "Clients", class: "number", cell: ({ connections }) => integer(connections) },
    { head: "Requests", class: "number", cell: perSecond("requests_total") },
    { head: "Received", class: "number", hint: "Bytes from clients", cell: perSecond("received_bytes_total", (n) => `${decimalBytes(n)}/s`) },
    { head: "Sent", class: "number", hint: "Bytes to clients", cell: perSecond("sent_bytes_total", (n) => `${decimalBytes(n)}/s`) },
    { head: "Appended", class: "number", hint: "Records appended to logs", cell: perSecond("appended_records_total") },
    { head: "Partitions", class: "number", hint: "Open ones", cell: ({ partitions_open }) => integer(partitions_open) },
    { head: "Delivered", class: "number", cell: perSecond("delivered_total") },
    { head: "Overdue", class: "number", cell: ({ overdue }) => integer(overdue) },
    { head: "Records in memory", class: "number", hint: "Pending records in memory", cell: ({ memory_records }) => integer(memory_records) },
    { head: "Journal", class: "number", hint: "Bytes that a restart would read", cell: ({ journal_live_bytes }) => bytes(journal_live_bytes) },
    { head: "Round p99", class: "number", hint: "Write and sync of the journal", cell: ({ journal_round_ms }) => (journal_round_ms?.count ? milliseconds(journal_round_ms.p99) : "–") },
    { head: "Syncs", class: "number", cell: perSecond("fsyncs_total") },
    { head: "Disk", cell: ({ has_room }) => el("span", { class: `state ${has_room ? "good" : "bad"}` }, has_room ? "has room" : "full") },
  ], { key: ({ shard }) => shard, caption: "Shards" });
  const partsTable = (caption, colour) => new Table([
    { head: "Part", class: "name", cell: ({ name, hint }) => el("span", { title: hint }, name) },
    { head: "Bytes", class: "wide-cell", cell: ({ bytes: size, whole, isAtLeast }) => meter(size, whole, `${isAtLeast ? "≥ " : ""}${bytes(size)}`, colour) },
  ], { key: ({ name }) => name, caption });
  const [memory, stored] = [partsTable("Memory, by part", "--series-1"), partsTable("The data directory, by part", "--series-4")];
  const [memoryNote, storedNote] = [el("span", { class: "card-note" }), el("span", { class: "card-note" })];
  const [memoryCard, storedCard] = [card("What takes the memory", memory.node, { wide: true, note: memoryNote }), card("What takes the disk", stored.node, { wide: true, note: storedNote })];
  memoryCard.dataset.part = "memory";
  storedCard.dataset.part = "disk";
  const refused = new Table([
    { head: "Reason", class: "name", cell: ({ name }) => name.replaceAll("_", " ") },
    { head: "Batches", class: "number", cell: ({ count }) => integer(count) },
  ], { key: ({ name }) => name, caption: "Batches that were refused" });
  const refusedCard = card("Refused batches", refused.node, { wide: true, note: el("span", { class: "card-note" }, "since the start, by reason: ", el("a", { href: "#clients" }, "which topics, and what was sent")) });
  const about = el("dl", { class: "facts" });

  const lengths = lengthChoice(draw);
  section.append(figures.node, disk, lengths.node,
    el("div", { class: "cards spans" }, charts.map(([title, chart, extra]) => card(title, el("div", { class: "chart-holder" }, chart.node), { extra }))),
    memoryCard, storedCard, card("By shard", table.node, { wide: true }), refusedCard, card("Broker", about, { wide: true }));

  function draw() {
    const { status } = live;
    if (!status) return;
    const { storage, process } = status;
    figures.set("requests", rate(lastRate("requests")));
    figures.set("connections", `${integer(status.connections)} of ${integer(status.max_connections)}`);
    const cpu = lastRate("cpu");
    figures.set("cpu", cpu === null ? "–" : `${Math.round(cpu * 100)} %`);
    figures.set("memory", bytes(process.rss_bytes));
    const { client_memory_bytes: held, client_memory_limit_bytes: most } = status;
    figures.set("client-memory", `${bytes(held)} of ${bytes(most)}`, isMemoryShort(status) ? "warn" : "");
    figures.set("files", integer(process.open_fds));
    figures.set("journal", lastRate("journal") === null ? "–" : `${bytes(lastRate("journal"))}/s`);
    figures.set("round", storage.journal_round_ms?.count ? milliseconds(storage.journal_round_ms.p99) : "–");
    figures.set("stored", bytes(storage.bytes));
    figures.set("pending-stored", bytes(storage.pending_blob_bytes + storage.pending_table_bytes));
    const isShort = isDiskShort(status);
    figures.set("free", bytes(tightest(storage)?.free_bytes), isShort ? "warn" : "");
    const trend = diskTrend(live.history, storage.reserve_bytes ?? 0);
    disk.replaceChildren(...storage.file_systems.map(({ directory, free_bytes: free, used_bytes: used }) => {
      // What is kept from this user is neither, as df has it.
      const whole = used + free;
      const isOfData = directory === status.data;
      const node = meter(used, whole,
        `${Math.ceil(100 * used / Math.max(1, whole))} % used${isOfData ? `, ${fullIn(trend)}: ${directory} has ${bytes(storage.bytes)}` : `: ${directory}, the logs of partitions`}; ${bytes(free)} of ${bytes(whole)} are free on its file system; below ${bytes(storage.reserve_bytes)} no records are accepted`,
        free < 2 * (storage.reserve_bytes ?? 0) || (isOfData && trend?.isSoon) ? "--warn" : "--series-0");
      if (isOfData && trend?.isSoon) node.classList.add("warn");
      return node;
    }));
    const now = live.now();
    lengths.update();
    for (const [, chart] of charts) chart.update(live.history, now);
    memory.update(memoryParts(status).map((each) => ({ ...each, whole: process.rss_bytes })));
    setText(memoryNote, `resident: ${bytes(process.rss_bytes)}`);
    stored.update(diskParts(status, live.topics?.topics ?? []).map((each) => ({ ...each, whole: storage.bytes })));
    setText(storedNote, `all files: ${bytes(storage.bytes)}, updated every ten seconds or less often`);
    table.update(status.shards);
    const reasons = Object.entries(status.refused_batches ?? {}).map(([name, count]) => ({ name, count })).sort((a, b) => b.count - a.count);
    refused.update(reasons);
    setHidden(refusedCard, reasons.length === 0);
    const facts = [["Version", status.version], ["State", status.state], ["Uptime", duration(status.uptime_ms)], ["Data", status.data], ["Kafka", status.listeners.kafka], ["Admin", status.listeners.admin], ["Cluster", status.cluster_id], ["Topics", `${integer(status.topics)}, ${integer(status.partitions)} partitions`], ["Last backup", lastBackup(status, now)]];
    if (about.children.length !== facts.length * 2) about.replaceChildren(...facts.flatMap(([name]) => [el("dt", {}, name), el("dd", {})]));
    facts.forEach(([, text], place) => setText(about.children[place * 2 + 1], String(text)));
  }
  return { draw };
}

// Topics with what is pending for them; each opens with its partitions, settings and refusals.

import { get, query } from "./api.js";
import { colourOf, giveColours } from "./colours.js";
import { showError, errorText } from "./confirmation.js";
import { Table, el, setHidden, setText, visible } from "./dom.js";
import { bytes, duration, fullTime, integer, plural } from "./format.js";
import { live, stuck_ms, whyLate } from "./live.js";
import * as panel from "./panel.js";
import { leaveAddress, meter, opening, senderOf, sinceStart, stateOf, withReason } from "./parts.js";
import { recordHash } from "./record.js";

// Those with most pending, as in the pictures, have a colour of their own.
const coloured = 12;
const listed_troubles = 8;

// The sums of topics that were asked for here, by name: the broker's events open no partition, and a sum over those that
// are not open is unknown, not 0.
const asked = new Map();
const known = (topic) => ((asked.get(topic.name)?.partitions_open ?? 0) > topic.partitions_open ? { ...topic, ...asked.get(topic.name) } : topic);
const keep = ({ name, partitions_open, offsets, bytes: size }) => asked.set(name, { partitions_open, offsets, bytes: size });

// A sum of open partitions.
function sumOf({ partitions, partitions_open }, text) {
  if (partitions_open === partitions) return text;
  const why = partitions_open === 0 ? "None of its partitions is open, so this is not known" : `${integer(partitions - partitions_open)} of its ${plural(partitions, "partition")} are not open, so there may be more`;
  return el("span", { title: why }, partitions_open === 0 ? "unknown" : `≥ ${text}`);
}

// With a space before it, where a narrow cell breaks.
const refusedMark = ({ refused_batches: refused }) => (refused?.total
  ? [" ", el("span", { class: "badge warn", title: `Last: ${visible(refused.last?.message ?? "")}` }, `${integer(refused.total)} refused`)] : null);

export function topicsView(section) {
  let most = 1;
  const open = (topic) => { location.hash = `#topics/${encodeURIComponent(topic.name)}`; };
  const table = new Table([
    { head: "Topic", class: "name", cell: (topic) => el("span", {}, el("span", { class: "swatch", style: { background: `var(${colourOf(topic.name)})` } }), el("span", { class: "topic-name" }, visible(topic.name)), refusedMark(topic)) },
    { head: "Pending", class: "wide-cell", cell: ({ name, pending }) => meter(pending, most, integer(pending), colourOf(name)) },
    { head: "Records", class: "number", hint: "Offsets that consumers may read", cell: (topic) => sumOf(topic, integer(topic.offsets)) },
    { head: "Size", class: "number", cell: (topic) => sumOf(topic, bytes(topic.bytes)) },
    { head: "Partitions", class: "number", cell: ({ partitions }) => integer(partitions) },
    { head: "Open", class: "number", hint: "Partitions that are open", cell: ({ partitions_open }) => integer(partitions_open) },
  ], { key: ({ name }) => name, caption: "Topics; Enter opens a row", after: opening(open) });
  const summary = el("p", { class: "summary", role: "status" });
  const empty = el("p", { class: "empty-note", hidden: true }, "There is no topic yet: ", el("code", {}, "tarry topic create orders --partitions 3"));
  section.append(summary, table.node, empty);

  function draw() {
    const { topics } = live;
    if (!topics) return;
    most = Math.max(1, ...topics.topics.map(({ pending }) => pending));
    giveColours(topics.topics.filter(({ pending }) => pending > 0).slice(0, coloured).map(({ name }) => name));
    table.update(topics.topics.map(known));
    setHidden(table.node, topics.topics.length === 0);
    setHidden(empty, topics.topics.length > 0);
    const all = topics.topics_total ?? topics.topics.length;
    setText(summary, all > topics.topics.length ? `${integer(topics.topics.length)} of ${integer(all)} topics: those with most pending, then by name` : "");
  }

  // After a restart partitions open when they are used; this answer opens them.  With more topics than are listed it would be
  // long, so each is then known when it is opened itself.
  async function ask() {
    const { topics } = live;
    if (!topics || (topics.topics_total ?? 0) > topics.topics.length || topics.topics.every(({ partitions, partitions_open }) => partitions === partitions_open)) return;
    try {
      (await get("/topics")).topics.forEach(keep);
      draw();
    } catch {
      // The sums stay unknown.
    }
  }

  // Another run has opened other partitions, or none.
  live.addEventListener("restart", () => {
    asked.clear();
    if (!section.hidden) live.addEventListener("topics", ask, { once: true });
  });
  return {
    show(parts, _parameters, changed) {
      if (changed && live.topics) ask();
      else if (changed) live.addEventListener("topics", ask, { once: true });
      if (parts[0]) showTopic(parts[0], draw);
      else panel.close();
    },
    draw,
  };
}

async function showTopic(name, onKnown) {
  const content = el("div", { class: "details" });
  panel.open({ name: "topic", title: visible(name), content, closed: () => leaveAddress("topics", name) });
  try {
    const topic = await get(`/topics/${encodeURIComponent(name)}`);
    topic.partitions = topic.partitions.map((each) => withReason(name, each));
    keep(topic);
    onKnown();
    const partitions = new Table([
      { head: "Partition", class: "number", cell: ({ partition }) => partition },
      { head: "Shard", class: "number", cell: ({ shard }) => shard },
      { head: "Log start", class: "number", cell: ({ log_start }) => (log_start === null || log_start === undefined ? "–" : integer(log_start)) },
      { head: "High watermark", class: "number", cell: ({ high_watermark }) => (high_watermark === null || high_watermark === undefined ? "–" : integer(high_watermark)) },
      { head: "Size", class: "number", cell: (each) => (each.open ? bytes(each.bytes) : "–") },
      { head: "State", cell: (each) => el("span", { class: `state ${stateOf(each).why ? "bad" : each.open ? "good" : ""}` }, stateOf(each).text) },
    ], { key: ({ partition }) => partition, caption: "Partitions" });
    partitions.update(topic.partitions);
    const troubles = topic.partitions.filter((each) => stateOf(each).why);
    const configs = Object.entries(topic.configs ?? {});
    const quote = (each) => el("blockquote", {}, visible(each.message), el("footer", {},
      `${each.batches > 1 ? `${integer(each.batches)} batches, the last: ` : ""}partition ${each.partition}, ${fullTime(each.at_ms)}${each.address ? `, from ${senderOf(each)}` : ""}`));
    // Each sender and message once; else the last one alone.
    const last = (what) => (what?.total ? [
      el("p", {}, `${integer(what.total)} ${live.status ? sinceStart(live.status) : "since the start"}.`),
      what.senders?.length ? what.senders.map(quote) : what.last ? quote(what.last) : null,
    ] : null);
    const part = (title, nodes) => (nodes ? el("section", {}, el("h3", {}, title), nodes) : null);
    content.append(
      ...troubles.slice(0, listed_troubles).map((each) => el("p", { class: "trouble-line" }, `Partition ${each.partition} ${stateOf(each).why}.`)),
      el("p", {}, el("a", { class: "button", href: `#pending?q=${encodeURIComponent(`topic:${name}`)}` }, `Show the ${integer(topic.pending)} pending`)),
      part("Settings", configs.length ? el("dl", { class: "facts" }, configs.map(([key, value]) => [el("dt", {}, key), el("dd", {}, el("code", {}, visible(value)))])) : el("p", { class: "none" }, "All settings have their defaults.")),
      ...[part("Refused batches", last(topic.refused_batches)), part("Dead letters", last(topic.dead_letters)),
        part("Misspelt headers", topic.header_slips?.total ? el("ul", {}, topic.header_slips.names.map((slip) => el("li", {}, el("code", {}, visible(slip.name)), ` for ${slip.meant}: ${integer(slip.count)}`))) : null)].filter(Boolean),
      part("Partitions", partitions.node));
    await sayOverdue(topic, content);
  } catch (error) {
    showError(content, errorText(error));
  }
}

// Its oldest overdue record, if it waits for longer than a busy broker lets it wait, and why.
async function sayOverdue(topic, content) {
  // Those of a partition out of service cannot be listed; the partition has a line of its own.
  const { records } = await get(`/delayed${query({ topic: topic.name, to: Math.round(live.now() - stuck_ms), limit: 1 })}`).catch(() => ({ records: [] }));
  const [first] = records;
  if (!first) return;
  const partition = topic.partitions.find((each) => each.partition === first.partition);
  const why = partition && stateOf(partition).why;
  content.prepend(el("p", { class: "trouble-line", data: { figure: "topic-overdue" } }, `Its oldest overdue record has waited for ${duration(live.now() - first.due_ms)}: `,
    el("a", { href: recordHash("overdue", first) }, visible(first.id ?? first.handle)), `. ${why ? `Its partition ${why}.` : whyLate()}`));
}

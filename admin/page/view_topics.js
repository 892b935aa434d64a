// Topics with what is pending for them; each opens with its partitions, settings and refusals.

import { get } from "./api.js";
import { colourOf, giveColours } from "./colours.js";
import { showError, errorText } from "./confirmation.js";
import { Table, el, setHidden, setText, visible } from "./dom.js";
import { bytes, fullTime, integer } from "./format.js";
import { live } from "./live.js";
import * as panel from "./panel.js";
import { meter, opening } from "./parts.js";

// Those with most pending, as in the pictures, have a colour of their own.
const coloured = 12;

export function topicsView(section) {
  let most = 1;
  const open = (topic) => { location.hash = `#topics/${encodeURIComponent(topic.name)}`; };
  const table = new Table([
    { head: "Topic", class: "name", cell: ({ name }) => el("span", {}, el("span", { class: "swatch", style: { background: `var(${colourOf(name)})` } }), visible(name)) },
    { head: "Pending", class: "wide-cell", cell: ({ name, pending }) => meter(pending, most, integer(pending), colourOf(name)) },
    { head: "Records", class: "number", hint: "Offsets that consumers may read", cell: ({ offsets }) => integer(offsets) },
    { head: "Size", class: "number", hint: "Of open partitions", cell: (topic) => bytes(topic.bytes) },
    { head: "Partitions", class: "number", cell: ({ partitions }) => integer(partitions) },
    { head: "Open", class: "number", hint: "Partitions that are open", cell: ({ partitions_open }) => integer(partitions_open) },
  ], { key: ({ name }) => name, caption: "Topics", after: opening(open) });
  const summary = el("p", { class: "summary", role: "status" });
  const empty = el("p", { class: "empty-note", hidden: true }, "There is no topic yet: ", el("code", {}, "tarry topic create orders --partitions 3"));
  section.append(summary, table.node, empty);

  function draw() {
    const { topics } = live;
    if (!topics) return;
    most = Math.max(1, ...topics.topics.map(({ pending }) => pending));
    giveColours(topics.topics.filter(({ pending }) => pending > 0).slice(0, coloured).map(({ name }) => name));
    table.update(topics.topics);
    setHidden(table.node, topics.topics.length === 0);
    setHidden(empty, topics.topics.length > 0);
    const all = topics.topics_total ?? topics.topics.length;
    setText(summary, all > topics.topics.length ? `${integer(topics.topics.length)} of ${integer(all)} topics: those with most pending, then by name` : "");
  }

  return {
    show(parts) {
      if (parts[0]) showTopic(parts[0]);
      else panel.close();
    },
    draw,
  };
}

async function showTopic(name) {
  const content = el("div", { class: "details" });
  panel.open({ name: "topic", title: visible(name), content, closed: () => location.hash.startsWith("#topics/") && history.replaceState(null, "", "#topics") });
  try {
    const topic = await get(`/topics/${encodeURIComponent(name)}`);
    const partitions = new Table([
      { head: "Partition", class: "number", cell: ({ partition }) => partition },
      { head: "Shard", class: "number", cell: ({ shard }) => shard },
      { head: "Log start", class: "number", cell: ({ log_start }) => (log_start === null || log_start === undefined ? "–" : integer(log_start)) },
      { head: "High watermark", class: "number", cell: ({ high_watermark }) => (high_watermark === null || high_watermark === undefined ? "–" : integer(high_watermark)) },
      { head: "Size", class: "number", cell: (each) => (each.open ? bytes(each.bytes) : "closed") },
      { head: "State", cell: ({ fenced, reason, open }) => (fenced ? `out of service: ${visible(reason ?? "")}` : open ? "open" : "closed") },
    ], { key: ({ partition }) => partition, caption: "Partitions" });
    partitions.update(topic.partitions);
    const configs = Object.entries(topic.configs ?? {});
    const last = (what) => (what?.total ? [
      el("p", {}, `${integer(what.total)} since the start.`),
      what.last ? el("blockquote", {}, visible(what.last.message), el("footer", {}, `partition ${what.last.partition}, ${fullTime(what.last.at_ms)}`)) : null,
    ] : null);
    const part = (title, nodes) => (nodes ? el("section", {}, el("h3", {}, title), nodes) : null);
    content.append(
      el("p", {}, el("a", { class: "button", href: `#pending?q=${encodeURIComponent(`topic:${name}`)}` }, `Show the ${integer(topic.pending)} pending`)),
      part("Settings", configs.length ? el("dl", { class: "facts" }, configs.map(([key, value]) => [el("dt", {}, key), el("dd", {}, el("code", {}, visible(value)))])) : el("p", { class: "none" }, "All settings have their defaults.")),
      ...[part("Refused batches", last(topic.refused_batches)), part("Dead letters", last(topic.dead_letters)),
        part("Misspelt headers", topic.header_slips?.total ? el("ul", {}, topic.header_slips.names.map((slip) => el("li", {}, el("code", {}, visible(slip.name)), ` for ${slip.meant}: ${integer(slip.count)}`))) : null)].filter(Boolean),
      part("Partitions", partitions.node));
  } catch (error) {
    showError(content, errorText(error));
  }
}

// The connected clients, the newest first.

import { Table, el, setHidden, setText, visible } from "./dom.js";
import { bytes, duration, integer, nearTime, rate } from "./format.js";
import { live } from "./live.js";
import { card, opening, senderOf } from "./parts.js";

export function clientsView(section) {
  // The clients of the event before, by address, for rates; and the seconds since then.
  let before = new Map();
  let newest = null;
  let seconds = null;
  const perSecond = (name, text) => (client) => {
    const then = before.get(client.address);
    if (!then || seconds === null || then.connected_ms > client.connected_ms || client[name] < then[name]) return "–";
    return text((client[name] - then[name]) / seconds);
  };
  const software = ({ software_name, software_version }) => (software_name ? `${visible(software_name)} ${visible(software_version)}`.trim() : "–");
  const table = new Table([
    { head: "Client id", class: "name", cell: ({ client }) => visible(client) || "(none)" },
    { head: "Address", cell: ({ address }) => visible(address) },
    { head: "Software", hint: "As reported by the client", cell: software },
    { head: "Principal", cell: ({ principal }) => visible(principal) },
    { head: "Listener", cell: ({ listener }) => visible(listener) },
    { head: "Connected for", class: "number", cell: ({ connected_ms }) => duration(Math.max(0, live.now() - connected_ms)) },
    { head: "Requests/s", class: "number", cell: perSecond("requests", rate) },
    { head: "Requests", class: "number", cell: ({ requests }) => integer(requests) },
    { head: "Sent", class: "number", hint: "Bytes that the client has sent since it connected", cell: ({ bytes_in }) => bytes(bytes_in) },
    { head: "Received", class: "number", hint: "Bytes that the client has received since it connected", cell: ({ bytes_out }) => bytes(bytes_out) },
    { head: "Shard", class: "number", cell: ({ shard }) => shard },
  ], { key: ({ address }) => address, caption: "Connected clients" });
  const refusals = new Table([
    { head: "Last", cell: ({ refused_batches: { last } }) => nearTime(last.at_ms, live.now()) },
    { head: "Topic", class: "name", cell: ({ name, refused_batches: { last } }) => `${visible(name)}/${last.partition}` },
    { head: "Batches", class: "number", hint: "Since the start of the broker", cell: ({ refused_batches: { total } }) => integer(total) },
    { head: "Reason", cell: ({ refused_batches: { last } }) => last.reason.replaceAll("_", " ") },
    { head: "From", class: "sender", hint: "Client id, principal and address of the client that sent the batch", cell: ({ refused_batches: { last } }) => senderOf(last) },
    { head: "What the producer was sent", class: "message", cell: ({ refused_batches: { last } }) => visible(last.message) },
  ], { key: ({ name }) => name, caption: "Topics that have refused batches", after: opening(({ name }) => { location.hash = `#topics/${encodeURIComponent(name)}`; }) });
  const elsewhere = el("span", { class: "card-note" });
  const refusalsCard = card("Refused batches, by topic", refusals.node, { wide: true, note: elsewhere });
  refusalsCard.dataset.part = "refusals";
  setHidden(refusalsCard, true);
  const summary = el("p", { class: "summary", role: "status" });
  const empty = el("p", { class: "empty-note", hidden: true }, "No client is connected.");
  section.append(refusalsCard, summary, table.node, empty);

  function drawRefusals() {
    const refusing = (live.topics?.topics ?? []).filter(({ refused_batches: refused }) => refused?.last).sort((a, b) => b.refused_batches.last.at_ms - a.refused_batches.last.at_ms);
    refusals.update(refusing);
    setHidden(refusalsCard, refusing.length === 0);
    const isCut = (live.topics?.topics_total ?? 0) > (live.topics?.topics.length ?? 0);
    setText(elsewhere, `the last one of each topic${isCut ? `; of the ${integer(live.topics.topics.length)} topics with most pending records` : ""}`);
  }

  function draw() {
    drawRefusals();
    const { clients } = live;
    if (!clients) return;
    if (newest !== clients) {
      before = new Map((newest?.clients ?? []).map((client) => [client.address, client]));
      const passed = newest ? (clients.at_ms - newest.at_ms) / 1000 : 0;
      seconds = passed > 0 && passed < 60 ? passed : null;
      newest = clients;
    }
    table.update(clients.clients);
    setHidden(table.node, clients.clients.length === 0);
    setHidden(empty, clients.clients.length > 0);
    const more = clients.clients_total - clients.clients.length;
    setText(summary, more > 0 ? `The ${integer(clients.clients.length)} newest connections; ${integer(more)} more are open.` : "");
  }
  return { draw };
}

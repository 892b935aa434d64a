// The connected clients, the newest first.

import { Table, el, setHidden, setText, visible } from "./dom.js";
import { bytes, duration, integer, nearTime, rate } from "./format.js";
import { live } from "./live.js";
import { card, opening, senderOf, sinceStart } from "./parts.js";

// One for each sender and message of each topic, the latest first; the batches whose sender is not kept have one, too.
function refusalsOf(topics) {
  return topics.flatMap(({ name, refused_batches: refused }) => {
    if (!refused?.last) return [];
    const others = refused.total - refused.senders.reduce((sum, { batches }) => sum + batches, 0);
    const unknown = { ...(refused.last.address ? { at_ms: null, reason: "–", message: "" } : refused.last), batches: others, isOthers: true };
    return [...refused.senders, ...(others > 0 ? [unknown] : [])].map((each) => ({ ...each, name }));
  }).sort((a, b) => (b.at_ms ?? 0) - (a.at_ms ?? 0));
}

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
    { head: "Last", cell: ({ at_ms: at }) => (at === null ? "–" : nearTime(at, live.now())) },
    { head: "Topic", class: "name", cell: ({ name, partition }) => visible(name) + (partition === undefined ? "" : `/${partition}`) },
    { head: "Batches", class: "number", hint: "Since the start of the broker", cell: ({ batches }) => integer(batches) },
    { head: "Reason", cell: ({ reason }) => reason.replaceAll("_", " ") },
    { head: "From", class: "sender", hint: "Client id, principal and address of the client that sent the last of these batches", cell: (each) => (each.isOthers ? "senders that are not kept" : senderOf(each)) },
    { head: "What the producer was sent", class: "message", cell: ({ message }) => visible(message) },
  ], { key: ({ name, client, principal, address, message, isOthers }) => JSON.stringify(isOthers ? [name] : [name, client, principal, address, message]), caption: "Batches that were refused, by topic, sender and message; Enter opens the topic", after: opening(({ name }) => { location.hash = `#topics/${encodeURIComponent(name)}`; }) });
  const elsewhere = el("span", { class: "card-note" });
  const refusalsCard = card("Refused batches, by sender and message", refusals.node, { wide: true, note: elsewhere });
  refusalsCard.dataset.part = "refusals";
  setHidden(refusalsCard, true);
  const summary = el("p", { class: "summary", role: "status" });
  const empty = el("p", { class: "empty-note", hidden: true }, "No client is connected.");
  section.append(refusalsCard, summary, table.node, empty);

  function drawRefusals() {
    const refusing = refusalsOf(live.topics?.topics ?? []);
    refusals.update(refusing);
    setHidden(refusalsCard, refusing.length === 0);
    const isCut = (live.topics?.topics_total ?? 0) > (live.topics?.topics.length ?? 0);
    setText(elsewhere, `${live.status ? `${sinceStart(live.status)}; ` : ""}the latest 16 senders and messages of a topic${isCut ? `; of the ${integer(live.topics.topics.length)} topics with most pending records` : ""}`);
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

// Consumer groups by their lag; each opens with its members and offsets.

import { get } from "./api.js";
import { showError, errorText } from "./confirmation.js";
import { Table, el, setHidden, setText, visible } from "./dom.js";
import { duration, fullTime, integer, plural } from "./format.js";
import { live } from "./live.js";
import * as panel from "./panel.js";
import { meter, opening } from "./parts.js";

const good = new Set(["Stable"]);

// The most that one panel lists.
const listed_offsets = 1000;
const listed_members = 200;

export function groupsView(section) {
  let most = 1;
  const open = (group) => { location.hash = `#groups/${encodeURIComponent(group.group)}`; };
  const table = new Table([
    { head: "Group", class: "name", cell: ({ group }) => visible(group) || "(empty name)" },
    { head: "State", cell: ({ state }) => el("span", { class: `state ${good.has(state) ? "good" : state === "Empty" || state === "Dead" ? "" : "warn"}` }, state) },
    { head: "Lag", class: "wide-cell", hint: "Offsets that are still to be read, in all partitions", cell: ({ lag }) => (lag === null || lag === undefined ? "–" : meter(lag, most, integer(lag), "--series-1")) },
    { head: "Members", class: "number", cell: ({ members }) => integer(members) },
    { head: "Partitions", class: "number", hint: "Partitions with a committed offset", cell: ({ offsets }) => integer(offsets) },
    { head: "Generation", class: "number", cell: ({ generation }) => integer(generation) },
    { head: "Time in state", class: "number", cell: ({ changed_ms }) => (changed_ms ? duration(Math.max(0, live.now() - changed_ms)) : "–") },
  ], { key: ({ group }) => group, caption: "Consumer groups", after: opening(open) });
  const summary = el("p", { class: "summary", role: "status" });
  const empty = el("p", { class: "empty-note", hidden: true }, "No consumer group yet: ", el("code", {}, "tarry consume orders -g billing"));
  section.append(summary, table.node, empty);

  function draw() {
    const { groups } = live;
    if (!groups) return;
    most = Math.max(1, ...groups.groups.map(({ lag }) => lag ?? 0));
    table.update(groups.groups);
    setHidden(table.node, groups.groups.length === 0);
    setHidden(empty, groups.groups.length > 0);
    const all = groups.groups_total ?? groups.groups.length;
    setText(summary, all > groups.groups.length ? `${integer(groups.groups.length)} of ${integer(all)} groups: those with the most lag, then by name` : "");
  }

  return {
    show(parts) {
      if (parts[0]) showGroup(parts[0]);
      else panel.close();
    },
    draw,
  };
}

async function showGroup(name) {
  const content = el("div", { class: "details" });
  panel.open({ name: "group", title: visible(name), content, closed: () => location.hash.startsWith("#groups/") && history.replaceState(null, "", "#groups") });
  try {
    const group = await get(`/groups/${encodeURIComponent(name)}`);
    const offsets = new Table([
      { head: "Topic", class: "name", cell: ({ topic }) => visible(topic) },
      { head: "Part.", class: "number", cell: ({ partition }) => partition },
      { head: "Committed", class: "number", cell: ({ committed }) => (committed === null ? "–" : integer(committed)) },
      { head: "End", class: "number", hint: "High watermark", cell: ({ high_watermark }) => (high_watermark === null ? "–" : integer(high_watermark)) },
      { head: "Lag", class: "number", cell: ({ lag }) => (lag === null ? "–" : integer(lag)) },
    ], { key: ({ topic, partition }) => `${topic} ${partition}`, caption: "Offsets" });
    offsets.update(group.offsets.slice(0, listed_offsets));
    const more = (all, shown, what) => (all > shown ? el("p", { class: "hint", data: { more: what } }, `and ${integer(all - shown)} more`) : null);
    const member = (each) => el("li", {},
      el("b", {}, visible(each.client || each.member)), each.leader ? el("span", { class: "badge" }, "leader") : null,
      el("span", { class: "muted" }, ` ${visible(each.host ?? "")}${each.instance ? `, static ${visible(each.instance)}` : ""}, session ${duration(each.session_timeout_ms)}`),
      el("div", { class: "muted" }, each.assigned.length ? each.assigned.map(({ topic, partitions }) => `${visible(topic)} ${partitions.join(" ")}`).join("; ") : "no partitions"));
    content.append(
      el("p", {}, `${group.state}, ${plural(group.lag ?? 0, "record")} behind`, group.assignor ? `, assigned by ${visible(group.assignor)}` : "", `, since ${fullTime(group.changed_ms)}.`),
      el("section", {}, el("h3", {}, "Members"), group.members.length ? el("ul", { class: "members" }, group.members.slice(0, listed_members).map(member)) : el("p", { class: "none" }, "none"), more(group.members.length, listed_members, "members")),
      el("section", {}, el("h3", {}, "Offsets"), group.offsets.length ? offsets.node : el("p", { class: "none" }, "none"), more(group.offsets.length, listed_offsets, "offsets")));
  } catch (error) {
    showError(content, errorText(error));
  }
}

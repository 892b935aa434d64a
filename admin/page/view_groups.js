// Consumer groups by their lag; each opens with its members and offsets.

import { get } from "./api.js";
import { showError, errorText } from "./confirmation.js";
import { Table, el, setHidden, setText, visible } from "./dom.js";
import { duration, fullTime, integer, plural } from "./format.js";
import { live } from "./live.js";
import * as panel from "./panel.js";
import { leaveAddress, meter, opening } from "./parts.js";

const good = new Set(["Stable"]);

// The most that one panel lists.
const listed_offsets = 1000;
const listed_members = 200;
// So many topics of a group are asked for the partitions in which it has no offset.
const asked_topics = 20;
// So many partitions are opened for the lags of a list; the other groups are asked for when they are opened themselves.
const opened_partitions = 2000;

const sumLeft = (others) => others.reduce((sum, { left }) => sum + (left ?? 0), 0);
// A sum that is not whole says so.
const lagOf = (offsets) => ({ lag: offsets.reduce((sum, { lag }) => sum + (lag ?? 0), 0), unknown: offsets.filter(({ lag }) => lag === null).length });

// The partitions of its topics in which a group has neither a committed offset nor a member: {topic, partition, committed, high_watermark, lag, left};
// `left` is how many records they have, null: not known.
async function leftOut(offsets) {
  const known = new Set(offsets.map(({ topic, partition }) => `${topic} ${partition}`));
  const names = [...new Set(offsets.map(({ topic }) => topic))].slice(0, asked_topics);
  // A topic that is deleted meanwhile has none.
  const topics = await Promise.all(names.map((name) => get(`/topics/${encodeURIComponent(name)}`).catch(() => ({ name, partitions: [] }))));
  return topics.flatMap(({ name, partitions }) => partitions.filter(({ partition }) => !known.has(`${name} ${partition}`))
    .map(({ partition, open, log_start: start, high_watermark: end }) => ({ topic: name, partition, committed: null, high_watermark: open ? end : null, lag: null, left: open ? end - start : null })));
}

const inOrder = (one, other) => (one.topic === other.topic ? one.partition - other.partition : one.topic < other.topic ? -1 : 1);

export function groupsView(section) {
  let most = 1;
  // By group: those whose lag the broker's events do not know, because they open no partition, and those with partitions that no lag counts.
  const asked = new Map();
  let asking = false;
  const isLagUnknown = ({ lag }) => lag === null || lag === undefined;
  const hasLeftOut = ({ offsets, topic_partitions: all }) => all > offsets;
  const known = (group) => {
    const { left = 0, ...answer } = asked.get(group.group) ?? {};
    return { ...group, ...(isLagUnknown(group) ? answer : {}), left: hasLeftOut(group) ? left : 0 };
  };
  const lagCell = ({ group, lag, unknown = 0, left = 0 }) => {
    if (lag === null || lag === undefined) return el("span", { class: "none", title: "Its partitions are not open: open the group for its lag" }, asked.has(group) ? "unknown" : "…");
    const node = meter(lag, most, `${unknown || left ? "≥ " : ""}${integer(lag)}`, "--series-1");
    const why = [unknown ? `${plural(unknown, "partition")} cannot be opened, and ${unknown === 1 ? "is" : "are"} not counted` : "",
      left ? `${plural(left, "record")} in partitions in which the group has committed no offset ${left === 1 ? "is" : "are"} not counted` : ""].filter(Boolean);
    if (why.length) node.title = why.join("; ");
    return node;
  };
  const partitionsCell = ({ offsets, topic_partitions: all }) => (all > offsets
    ? el("span", { title: "The group has committed no offset in the other partitions of its topics: open it to see how many records they have" }, `${integer(offsets)} of ${integer(all)}`)
    : integer(offsets));
  const open = (group) => { location.hash = `#groups/${encodeURIComponent(group.group)}`; };
  const table = new Table([
    { head: "Group", class: "name", cell: ({ group }) => visible(group) || "(empty name)" },
    { head: "State", cell: ({ state }) => el("span", { class: `state ${good.has(state) ? "good" : state === "Empty" || state === "Dead" ? "" : "warn"}` }, state) },
    { head: "Lag", class: "wide-cell", hint: "Offsets that are still to be read, in all partitions", cell: lagCell },
    { head: "Members", class: "number", cell: ({ members }) => integer(members) },
    { head: "Partitions", class: "number", hint: "Partitions with a committed offset, of all partitions of the group's topics", cell: partitionsCell },
    { head: "Generation", class: "number", cell: ({ generation }) => integer(generation) },
    { head: "Time in state", class: "number", cell: ({ changed_ms }) => (changed_ms ? duration(Math.max(0, live.now() - changed_ms)) : "–") },
  ], { key: ({ group }) => group, caption: "Consumer groups; Enter opens a row", after: opening(open) });
  const summary = el("p", { class: "summary", role: "status" });
  const empty = el("p", { class: "empty-note", hidden: true }, "No consumer group yet: ", el("code", {}, "tarry consume orders -g billing"));
  section.append(summary, table.node, empty);

  function draw() {
    const { groups } = live;
    if (!groups) return;
    const shown = groups.groups.map(known);
    most = Math.max(1, ...shown.map(({ lag }) => lag ?? 0));
    table.update(shown);
    if (!asking) ask(groups.groups);
    setHidden(table.node, groups.groups.length === 0);
    setHidden(empty, groups.groups.length > 0);
    const all = groups.groups_total ?? groups.groups.length;
    setText(summary, all > groups.groups.length ? `${integer(groups.groups.length)} of ${integer(all)} groups: those with the most lag, then by name` : "");
  }

  // One after the other, each once while the view is looked at: the answer about one group opens its partitions.
  async function ask(groups) {
    asking = true;
    let left = opened_partitions;
    for (const each of groups) {
      const { group } = each;
      if (section.hidden) break;
      if ((!isLagUnknown(each) && !hasLeftOut(each)) || asked.has(group)) continue;
      left -= hasLeftOut(each) ? each.topic_partitions : each.offsets;
      if (left < 0) {
        asked.set(group, {});
        continue;
      }
      try {
        const { offsets } = await get(`/groups/${encodeURIComponent(group)}`);
        asked.set(group, { ...lagOf(offsets), left: hasLeftOut(each) ? sumLeft(await leftOut(offsets)) : 0 });
        draw();
      } catch {
        asked.set(group, {});  // It is gone, or the connection is.
      }
    }
    asking = false;
  }

  live.addEventListener("restart", () => asked.clear());
  return {
    show(parts, _parameters, changed) {
      if (changed) asked.clear();
      if (parts[0]) showGroup(parts[0]);
      else panel.close();
    },
    draw,
  };
}

async function showGroup(name) {
  const content = el("div", { class: "details" });
  panel.open({ name: "group", title: visible(name), content, closed: () => leaveAddress("groups", name) });
  try {
    const group = await get(`/groups/${encodeURIComponent(name)}`);
    const offsets = new Table([
      { head: "Topic", class: "name", cell: ({ topic }) => visible(topic) },
      { head: "Part.", class: "number", cell: ({ partition }) => partition },
      { head: "Committed", class: "number", cell: ({ committed }) => (committed === null ? "none" : integer(committed)) },
      { head: "End", class: "number", hint: "High watermark", cell: ({ high_watermark }) => (high_watermark === null ? "–" : integer(high_watermark)) },
      { head: "Lag", class: "number", cell: ({ lag, left = null }) => (left !== null ? plural(left, "record") : lag === null ? "–" : integer(lag)) },
    ], { key: ({ topic, partition }) => `${topic} ${partition}`, caption: "Offsets" });
    const others = await leftOut(group.offsets);
    const rows = others.length ? [...group.offsets, ...others].sort(inOrder) : group.offsets;
    offsets.update(rows.slice(0, listed_offsets));
    const left = sumLeft(others);
    const isWhole = others.every((each) => each.left !== null);
    const more = (all, shown, what) => (all > shown ? el("p", { class: "hint", data: { more: what } }, `and ${integer(all - shown)} more`) : null);
    const member = (each) => el("li", {},
      el("b", {}, visible(each.client || each.member)), each.leader ? el("span", { class: "badge" }, "leader") : null,
      el("span", { class: "muted" }, ` ${visible(each.host ?? "")}${each.instance ? `, static ${visible(each.instance)}` : ""}, session ${duration(each.session_timeout_ms)}`),
      el("div", { class: "muted" }, each.assigned.length ? each.assigned.map(({ topic, partitions }) => `${visible(topic)} ${partitions.join(" ")}`).join("; ") : "no partitions"));
    const { lag, unknown } = lagOf(group.offsets);
    content.append(
      unknown ? el("p", { class: "trouble-line" }, `The lag of ${plural(unknown, "partition")} is not known: the topic's page says whether they can be opened.`) : "",
      el("p", {}, `${group.state}, ${unknown ? "at least " : ""}${plural(lag, "record")} behind`, group.assignor ? `, assigned by ${visible(group.assignor)}` : "", `, since ${fullTime(group.changed_ms)}.`),
      others.length ? el("p", { class: left ? "trouble-line" : "hint", data: { figure: "left-out" } }, `No offset is committed in ${plural(others.length, "other partition")} of its topics: ${isWhole ? "" : "at least "}${plural(left, "record")} there ${left === 1 ? "is" : "are"} not counted in the lag.`) : "",
      el("section", {}, el("h3", {}, "Members"), group.members.length ? el("ul", { class: "members" }, group.members.slice(0, listed_members).map(member)) : el("p", { class: "none" }, "none"), more(group.members.length, listed_members, "members")),
      el("section", {}, el("h3", {}, "Offsets"), rows.length ? offsets.node : el("p", { class: "none" }, "none"), more(rows.length, listed_offsets, "offsets")));
  } catch (error) {
    showError(content, errorText(error));
  }
}

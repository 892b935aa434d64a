// The view of pending records: pictures of how many are due when, and the records, searched or by due time.

import { Bars, legend } from "./charts.js";
import { colourOf, giveColours } from "./colours.js";
import { el, setAttribute, setHidden, setText, visible, $ } from "./dom.js";
import { errorText, showError } from "./confirmation.js";
import { get, query } from "./api.js";
import { dateOf, dayAndMonth, duration, fullTime, integer, minuteOf, nearTime, plural, timeOf, zoneAt } from "./format.js";
import { isStuck, live, oldestOverdue } from "./live.js";
import { openMany } from "./many.js";
import * as panel from "./panel.js";
import { openRecord, recordHash, recordOf, sameRecord } from "./record.js";
import { RecordList } from "./records.js";
import { count, describe, find, isEmpty, parseSearch, spanText, terms } from "./search.js";

const spans = [
  { span: "minute", title: "Coming minute", bucket: (from) => timeOf(from), tick: (place) => ({ 0: "now", 15: "15 s", 30: "30 s", 45: "45 s" })[place] },
  { span: "hour", title: "Coming hour", bucket: (from, to) => `${minuteOf(from)} – ${minuteOf(to)}`, tick: (_, at) => (new Date(at).getMinutes() % 15 === 0 ? minuteOf(at) : null) },
  { span: "day", title: "Coming day", bucket: (from, to) => `${dayAndMonth(from)}, ${minuteOf(from)} – ${minuteOf(to)}`, tick: (_, at) => (new Date(at).getHours() % 6 === 0 ? minuteOf(at) : null) },
  { span: "month", title: "Coming month", bucket: (from, to) => (minuteOf(from) === "00:00" && to - from === 86_400_000 ? dateOf(from) : `${nearTime(from, 0)} – ${nearTime(to, 0)}`), tick: (place, at) => (place % 7 === 0 && place < 28 ? dayAndMonth(at) : null) },
];

const typing_ms = 120;
// The list is read again this often while it is looked at; a search that takes long is not.
const refresh_ms = 2000;
const search_refresh_ms = 5000;
// Rows do not move away under the pointer, but for so long only.
const held_ms = 6000;
const quick_ms = 400;
const max_id_bytes = 249;
// A list that is longer is read again in its beginning only.
const read_again = 100;
// So many topics are named where one was meant.
const named_topics = 3;
// So many listed records are asked for at a time, whether they are pending still.
const checked_at_a_time = 8;

// A moment of today with its seconds, another one with its date.
const untilText = (ms, now) => (new Date(ms).toDateString() === new Date(now).toDateString() ? timeOf(ms) : `${dayAndMonth(ms)}, ${minuteOf(ms)}`);

// The number of pending records, in parts that add up: all of one moment.
function sumText(due) {
  const month = due.spans.find(({ span }) => span === "month")?.total;
  if (month === null || month === undefined || !due.total) return "";
  const parts = [due.overdue ? `${integer(due.overdue)} ${live.status?.delayed.overdue ? "overdue" : "due now"}` : "", `${integer(month)} due in the coming month`, due.later ? `${integer(due.later)} later` : ""].filter(Boolean);
  return `${integer(due.total)} pending at ${timeOf(due.current ? due.now_ms : due.as_of_ms)}: ${parts.join(", ")}`;
}

// The topics of one picture, those with most records first.
function totalsText({ counts, other }) {
  const sum = (row) => row.reduce((a, b) => a + b, 0);
  const parts = Object.entries(counts).map(([topic, row]) => [visible(topic), sum(row)]).filter(([, count]) => count > 0).sort((a, b) => b[1] - a[1]);
  const rest = other ? sum(other) : 0;
  return [...parts, ...(rest > 0 ? [["other topics", rest]] : [])].map(([name, count]) => `${name} ${integer(count)}`).join("\n");
}

// A list that is whole is counted already; a time has a picture as well.
const hasMoreOrSpan = (search, { hasMore }) => !isEmpty(search) && (hasMore || search.span !== null);

export function pendingView(section) {
  return new PendingView(section);
}

class PendingView {
  #text = "";
  #search = parseSearch("", 0);
  #abort = null;
  #timer = null;
  #next = null;
  #isLooking = false;
  #visible = false;
  #refreshed = 0;
  #took = 0;
  #failed = false;  // The last search got no answer.
  #opened = null;
  #scale = "auto";
  #drawn = null;
  #pastOf = null;  // The search whose past is shown below the empty list.
  #many = null;  // The form for many, and the text of the search that it was opened with.
  #counted = null;  // The answer of count() for the present search.
  #isOther = false;  // Somebody searches for something else than when the record beside the list was opened.
  #isChecking = false;
  #checked = 0;  // Turns of it.

  constructor(section) {
    this.section = section;
    this.input = $("input[type=search]");
    this.charts = spans.map(({ span, title, bucket, tick }) => {
      const chart = new Bars({ label: `${title}: records due, by topic`, bucketText: bucket, tickText: tick, onPick: (from, to) => this.search(spanText(from, to), { focus: true }) });
      const split = el("p", { class: "card-split", hidden: true });
      const total = el("button", { type: "button", class: "card-figure", "aria-expanded": "false", on: { click: () => {
        split.hidden = !split.hidden;
        total.setAttribute("aria-expanded", String(!split.hidden));
      } } }, "–");
      const note = el("span", { class: "card-note" });
      const blank = el("p", { class: "chart-blank", hidden: true });
      const log = el("span", { class: "chart-scale", hidden: true }, "log scale");
      return { span, chart, total, split, note, blank, log, node: el("article", { class: "card", data: { span } }, el("header", { class: "card-head" }, el("h2", {}, el("span", {}, title.split(" ")[0]), ` ${title.split(" ")[1]}`), note, total), split, el("div", { class: "chart-holder" }, chart.node, blank, log)) };
    });
    this.zoom = this.#makeZoom();
    this.legend = el("ul", { class: "legend", "aria-label": "Topics in the charts, with their records of the coming month: each lists them", title: "Records due in the coming month, by topic; a click lists those of the topic" });
    this.sum = el("p", { class: "sum", data: { figure: "sum" } });
    this.scale = el("div", { class: "segmented", role: "group", "aria-label": "Scale of the charts" }, ["auto", "linear", "log"].map((name) =>
      el("button", { type: "button", "aria-pressed": String(name === "auto"), on: { click: () => this.#scaleTo(name) } }, name)));
    this.heading = el("h2", {}, "Due next");
    this.summary = el("p", { class: "summary", role: "status", "aria-live": "polite" });
    this.clear = el("button", { type: "button", class: "tab", hidden: true, on: { click: () => this.search("", { focus: true }) } }, "Clear");
    this.many = el("button", { type: "button", data: { action: "many" }, on: { click: () => this.#openMany() } }, "Many at once…");
    this.list = new RecordList({ label: "Pending records; Enter opens one", onOpen: (record) => this.#open(record) });
    this.list.node.id = "records";
    this.empty = el("div", { class: "empty-note", hidden: true });
    this.more = el("button", { type: "button", class: "more", hidden: true, on: { click: () => this.#more() } }, "More");
    this.problem = el("div");
    this.late = el("a", { class: "late-line", href: "#overdue", hidden: true, data: { figure: "late" } });
    section.append(
      el("div", { class: "bar" }, this.sum, this.scale),
      el("div", { class: "legend-line" }, this.legendLead = el("span", { class: "legend-lead", "aria-hidden": "true" }, "in the coming month:"), this.legend),
      el("div", { class: "cards spans" }, this.charts.map(({ node }) => node)),
      this.head = el("div", { class: "list-head" }, this.heading, this.summary, this.clear, this.many),
      this.late, this.zoom.node, this.problem, this.list.node, this.empty, this.more);
    live.addEventListener("due", () => {
      if (!this.#visible) return;
      this.#refreshIfIdle();
      this.#checkListed();
    });
    // Words may be the name of a topic that was not there before.
    let names = "";
    live.addEventListener("topics", () => {
      const now = live.topics.topics.map(({ name }) => name).sort().join("\n");
      if (names !== now && this.#visible && this.#search.words && !this.#isLooking) this.#run(null, true);
      names = now;
    });
    live.addEventListener("state", () => live.state === "live" && this.#visible && this.refresh());
  }

  // When in the time that is searched for its records are due.
  #makeZoom() {
    const bar = (from, to) => (to - from >= 86_400_000 ? `${nearTime(from, 0)} – ${nearTime(to, 0)}` : `${minuteOf(from)} – ${minuteOf(to)}`);
    const tick = (_, at) => {
      const { from, bucket_ms, counts } = this.zoom.bars;
      if (bucket_ms < 3_600_000) return new Date(at).getMinutes() % (counts.length > 60 ? 20 : 10) === 0 ? minuteOf(at) : null;
      if (bucket_ms < 86_400_000) return new Date(at).getHours() % (counts.length > 24 ? 6 : 3) === 0 ? minuteOf(at) : null;
      return Math.round((at - from) / bucket_ms) % 7 === 0 ? dayAndMonth(at) : null;
    };
    const chart = new Bars({ label: "Records due in the time that is searched for", bucketText: bar, tickText: tick,
      onPick: (from, to) => this.search(`${this.#search.topic ? `topic:${this.#search.topic} ` : ""}${spanText(from, to)}`, { focus: true }) });
    const note = el("span", { class: "card-note", data: { figure: "peak" } });
    const title = el("h2");
    const topics = el("p", { class: "card-topics", data: { figure: "topics" } });
    return { chart, note, title, topics, node: el("article", { class: "card zoom", data: { span: "zoom" }, hidden: true }, el("header", { class: "card-head" }, title, note), topics, el("div", { class: "chart-holder" }, chart.node)) };
  }

  #showZoom(counted) {
    this.#counted = counted;
    const { zoom } = this;
    setHidden(zoom.node, !counted?.bars || !counted.peak);
    if (zoom.node.hidden) return;
    const { peak, bars } = counted;
    setText(zoom.title, `By ${bars.bucket_ms < 3_600_000 ? "minute" : bars.bucket_ms < 86_400_000 ? "hour" : "day"}`);
    const today = new Date(live.now()).toDateString();
    const most = peak.most.map(({ from, count: records }) => `${new Date(from).toDateString() === today ? "" : `${dayAndMonth(from)}, `}${minuteOf(from)}, ${integer(records)}`);
    setText(zoom.note, `most in ${peak.unit === "hour" ? "an hour" : "a minute"}: ${most.join("; ")}`);
    setText(zoom.topics, counted.topics.map(({ name, count: records }) => `${visible(name)} ${integer(records)}`).join(", "));
    zoom.bars = bars;  // For the ticks, whenever the chart is drawn.
    const { topic } = this.#search;
    const series = [{ name: topic ?? "all topics", colour: topic ? colourOf(topic) : "--accent", counts: bars.counts }];
    zoom.chart.update({ from: bars.from, until: bars.from + bars.counts.length * bars.bucket_ms, bucket_ms: bars.bucket_ms, series }, this.#scale === "log");
  }

  show(parts, parameters) {
    this.#visible = true;
    const text = parameters.get("q") ?? "";
    if (text !== this.#text || this.#refreshed === 0) this.#set(text);
    else if (this.input.value !== text) this.input.value = text;
    const record = recordOf(parts);
    if (record) this.#showRecord(record);
    else if (this.#opened) {
      this.#opened = null;
      panel.close();
    }
  }

  hide() {
    this.#visible = false;
    if (this.#opened) {
      this.#opened = null;
      panel.close();
    }
  }

  focusFirst() {
    this.list.focusFirst();
  }

  // Searches for the text; from another view it is shown here.
  search(text, { typed = false, focus = false } = {}) {
    const hash = `#pending${text ? `?q=${encodeURIComponent(text)}` : ""}`;
    this.#isOther ||= text !== this.#text;
    this.#set(text, typed ? typing_ms : 0);
    if (location.hash === hash) return;
    if (!this.#visible) {
      // The view changes at once: an event that comes after more keys would put the older text back into the box.
      history.pushState(null, "", hash);
      window.dispatchEvent(new HashChangeEvent("hashchange"));
    } else if (!typed) history.replaceState(null, "", hash);
    if (focus) this.head.scrollIntoView({ block: "nearest" });
  }

  #set(text, pause = 0) {
    this.#text = text;
    if (this.input.value !== text) this.input.value = text;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      if (pause > 0) this.#showAddress();
      this.refresh();
    }, pause);
  }

  // Not with each key: a browser allows some 200 changes of the address in half a minute, and then
  // ignores clicks on records too.
  #showAddress() {
    const hash = `#pending${this.#text ? `?q=${encodeURIComponent(this.#text)}` : ""}`;
    if (this.#visible && !this.#opened && location.hash !== hash) history.replaceState(null, "", hash);
  }

  refresh() {
    this.#run(null);
  }

  #refreshIfIdle() {
    if (this.#isLooking || this.#search.wrong) return;
    const age = performance.now() - this.#refreshed;
    if (this.#failed) return age > search_refresh_ms ? this.refresh() : undefined;
    if (age < held_ms && this.list.body.matches(":hover")) return;
    if (isEmpty(this.#search) ? age > refresh_ms : age > search_refresh_ms && this.#took < quick_ms) this.#run(null, true);
  }

  // A search that goes on, or takes long, keeps what it has found, and a long list its end: records of them that were delivered or cancelled
  // meanwhile are marked.  Those on the screen take turns.
  async #checkListed() {
    const isReadAgain = !this.#isLooking && this.#took < quick_ms && this.list.records.length <= read_again;
    if (this.#isChecking || isReadAgain) return;
    const pending = this.list.onScreen().filter(({ handle }) => !this.list.gone.has(handle));
    const turns = Math.max(1, Math.ceil(pending.length / checked_at_a_time));
    const first = (this.#checked++ % turns) * checked_at_a_time;
    this.#isChecking = true;
    try {
      await Promise.all(pending.slice(first, first + checked_at_a_time).map(async ({ handle }) => {
        const { records, next } = await get(`/delayed${query({ q: handle, limit: 1 })}`);
        // With a next, not all was looked at.
        if (!records.length && next === null) this.list.markGone(handle);
      }));
    } catch {
      // It is not known, and asked again.
    } finally {
      this.#isChecking = false;
    }
  }

  #more() {
    this.#run(this.#next);
  }

  async #run(after, isQuiet = false) {
    this.#abort?.abort();
    const abort = new AbortController();
    this.#abort = abort;
    this.#isLooking = true;
    this.#search = parseSearch(this.#text, live.now());
    const search = this.#search;
    const earlier = after ? this.list.records : [];
    const begun = performance.now();
    let state = null;
    // An error of a change, in the panel beside the list, is not this search's to remove.
    if (!isQuiet) this.problem.replaceChildren();
    if (!isQuiet) {
      this.#showZoom(null);
      this.#say(search, null, false);
    }
    if (search.wrong) {
      this.#isLooking = false;
      this.#failed = false;
      this.#sayNotSearched(search.wrong);
      this.#tellMany();
      return;
    }
    try {
      await find(search, {
        signal: abort.signal, after,
        onFound: ({ records, next, complete, hasMore }) => {
          // A quiet refresh shows nothing half done.
          if (abort.signal.aborted || (isQuiet && !complete)) return;
          this.#failed = false;
          this.#next = next;
          const known = new Set(earlier.map(({ handle }) => handle));
          // A quiet refresh does not take away what was asked for by More.
          if (isQuiet && this.list.records.length > records.length && next) return;
          this.list.update([...earlier, ...records.filter(({ handle }) => !known.has(handle))], search.words);
          if (this.#opened) this.list.mark(this.#opened.handle);
          this.#say(search, { next, complete, hasMore }, isQuiet);
          state = { next, complete, hasMore };
        },
      });
      if (!abort.signal.aborted && !isQuiet) {
        this.#tellMany();
        this.#closeOther();
      }
      const counted = state?.complete && hasMoreOrSpan(search, state) ? await count(search, abort.signal).catch(() => null) : null;
      if (!abort.signal.aborted && state) {
        this.#showZoom(counted);
        if (counted) this.#say(search, state, isQuiet);
      }
    } catch (error) {
      if (error.name === "AbortError") return;
      if (abort.signal.aborted) return;
      // A refresh leaves what it could not read again; the head of the page says since when the broker is away.
      if (!isQuiet) {
        this.#failed = true;
        this.#sayNotSearched(`${errorText(error)} The search is repeated when the broker answers again.`);
      }
    }
    if (this.#abort === abort) {
      this.#isLooking = false;
      this.#refreshed = performance.now();
      this.#took = this.#refreshed - begun;
    }
  }

  // Records of an earlier search, and "none", would look like the answer to this one.
  #sayNotSearched(why) {
    this.list.update([]);
    setText(this.heading, "Not searched");
    setText(this.summary, "");
    for (const node of [this.more, this.empty]) setHidden(node, true);
    showError(this.problem, why);
  }

  #say(search, state, isQuiet) {
    const plain = isEmpty(search);
    const count = this.list.records.length;
    setText(this.heading, plain ? "Due next" : "Found");
    setHidden(this.clear, plain);
    this.section.classList.toggle("searching", !plain);
    setHidden(this.more, !state || !state.complete || !state.next);
    if (!isQuiet || !plain) {
      const words = plain ? "" : describe(search, live.now());
      if (!state) setText(this.summary, plain ? "" : `searching for ${words}…`);
      else if (plain) setText(this.summary, count && state.next ? `the first ${integer(count)}` : "");
      else {
        const all = this.#counted?.total;
        const found = all !== undefined && all >= count ? plural(all, "record") : state.hasMore ? `${integer(count)} or more` : plural(count, "record");
        setText(this.summary, `${found}: ${words}${all > count ? `; the first ${integer(count)}` : ""}${state.complete ? "" : ", still searching…"}`);
      }
    }
    if (!state) return;
    setText(this.more, plain || count ? "Show more" : "Search further");
    const isBlank = count === 0 && state.complete && !state.next;
    setHidden(this.empty, !isBlank);
    setHidden(this.list.node, isBlank);
    setHidden(this.many, isBlank && plain);
    if (!isBlank) this.#pastOf = null;
    else if (plain && isStuck()) this.empty.replaceChildren(el("p", {}, "Nothing else is pending."));
    else if (plain) this.empty.replaceChildren(el("p", {}, "Nothing is pending. A record with a delivery time shows up here:"), el("pre", {}, "tarry produce orders -v 'pay up' -k 4711 --delay 1m --id order-4711"));
    else this.#sayNothing(search);
  }

  // Nothing that is pending matches.  If the search is an id, what became of its records.
  #sayNothing(search) {
    const words = describe(search, live.now());
    if (this.#pastOf === words) return;
    this.#pastOf = words;
    const past = el("div");
    this.empty.replaceChildren(el("p", {}, "No pending record matches. A record that was delivered or cancelled is no longer found here, except by its id."),
      search.id || search.key ? el("p", {}, "id: and key: take patterns of the whole text: write id:*4711* to find a part of it.") : "",
      (search.topic && this.#noTopic(search.topic)) || "",
      ...search.unknown.map((term) => el("p", { data: { unknown: term } }, `${visible(term)} is not a search term; it was searched as text. The terms are ${terms.map((each) => `${each}:`).join(", ")}.`)),
      /\s/.test(search.words) ? el("p", {}, "The words are searched for as one text, with their spaces.") : "",
      search.words.startsWith("@") ? el("p", {}, "A handle names a record only while it is pending: search for its id.") : "", past);
    const id = search.id ?? search.words;
    if (!id || id.startsWith("@") || new TextEncoder().encode(id).length > max_id_bytes || /[*?]/.test(id)) return;
    get(`/delayed/trace?id=${encodeURIComponent(id)}`).then(({ events }) => {
      if (this.#pastOf !== words) return;
      const last = new Map(events.filter(({ topic }) => !search.topic || topic === search.topic).map((event) => [event.topic, event]));
      past.replaceChildren(...[...last.values()].map(({ topic, event, at_ms }) => el("p", { data: { past: topic } },
        `“${visible(id)}” of ${visible(topic)} was ${event}: ${fullTime(at_ms)}. `, el("a", { href: `${recordHash("pending", { topic, id })}?q=${encodeURIComponent(this.#text)}` }, "Show its history"))));
    }, () => {});
  }

  // A name that is no topic's, and those that contain it; null: it is one, or not all are known.
  #noTopic(name) {
    const listed = live.topics?.topics ?? [];
    if (!listed.length || listed.length < (live.topics.topics_total ?? 0) || listed.some((each) => each.name === name)) return null;
    const like = listed.filter((each) => each.name.toLowerCase().includes(name.toLowerCase())).slice(0, named_topics).map((each) => visible(each.name));
    return el("p", { data: { noTopic: "" } }, `There is no topic “${visible(name)}”${like.length ? `, but ${like.join(", ")}` : ""}. topic: takes the whole name.`);
  }

  #sayLate() {
    const isLate = isStuck() && isEmpty(this.#search);
    setHidden(this.late, !isLate);
    if (isLate) setText(this.late, `${integer(live.status.delayed.overdue)} overdue, the oldest for ${duration(oldestOverdue())}`);
  }

  #scaleTo(name) {
    this.#scale = name;
    for (const button of this.scale.children) button.setAttribute("aria-pressed", String(button.textContent === name));
    this.#drawn = null;
    this.draw();
  }

  draw() {
    this.#sayLate();
    const { due } = live;
    // Figures come each second, the pictures only every other one.
    if (!due || !this.#visible || this.#drawn === due) return;
    this.#drawn = due;
    const sums = new Map();
    for (const { counts } of due.spans) for (const [topic, row] of Object.entries(counts ?? {})) sums.set(topic, Math.max(sums.get(topic) ?? 0, row.reduce((a, b) => a + b, 0)));
    // A topic that is among the largest only of a shorter span has no number of the month.
    const month = due.spans.find(({ span }) => span === "month");
    const ofMonth = new Map(Object.entries(month?.counts ?? {}).map(([topic, row]) => [topic, row.reduce((a, b) => a + b, 0)]));
    const topics = [...sums.keys()].sort((a, b) => (ofMonth.get(b) ?? 0) - (ofMonth.get(a) ?? 0) || sums.get(b) - sums.get(a));
    giveColours(topics);
    let hasOther = false;
    for (const view of this.charts) {
      const data = due.spans.find(({ span }) => span === view.span);
      const known = data && data.counts !== null;
      setText(view.total, known ? integer(data.total) : "");
      setAttribute(view.total, "title", known ? `By topic:\n${totalsText(data)}` : null);
      setText(view.split, known && data.total ? totalsText(data) : "nothing due");
      const isBlank = !known || data.total === 0;
      setHidden(view.blank, !isBlank);
      if (isBlank) setText(view.blank, known ? "nothing due" : "counting…");
      view.chart.node.classList.toggle("blank", isBlank);
      setText(view.note, `until ${untilText(data.until, due.now_ms)}`);
      setAttribute(view.note, "title", `from now until ${fullTime(data.until)} ${zoneAt(data.until)}`);
      if (!known) continue;
      const length = data.other?.length ?? Object.values(data.counts)[0]?.length ?? 0;
      const own = topics.filter((topic) => data.counts[topic]).map((topic) => ({ name: topic, colour: colourOf(topic), counts: data.counts[topic] }));
      const rest = data.other ?? Array(length).fill(0);
      const hasRest = rest.some((count) => count > 0);
      hasOther ||= hasRest;
      const series = hasRest || !own.length ? [...own, { name: "other topics", colour: "--series-other", counts: rest }] : own;
      const isLogarithmic = this.#isLogarithmic(series, length);
      view.chart.update({ from: data.from, until: data.until, bucket_ms: data.bucket_ms, series }, isLogarithmic);
      setHidden(view.log, !isLogarithmic || isBlank);
    }
    legend(this.legend, [...topics.map((topic) => ({ name: topic, colour: colourOf(topic), value: ofMonth.has(topic) ? integer(ofMonth.get(topic)) : "", pick: () => this.search(`topic:${topic}`, { focus: true }) })),
      ...(hasOther ? [{ name: "other topics", colour: "--series-other" }] : [])]);
    setHidden(this.legendLead, topics.length === 0);
    setText(this.sum, sumText(due));
  }

  // Where the largest bar would flatten the others.
  #isLogarithmic(series, length) {
    if (this.#scale !== "auto") return this.#scale === "log";
    const sums = Array.from({ length }, (_, place) => series.reduce((sum, { counts }) => sum + counts[place], 0)).filter((sum) => sum > 0).sort((a, b) => a - b);
    return sums.length > 1 && sums.at(-1) > 40 * sums[Math.floor(sums.length / 2)];
  }

  #openMany() {
    // The form that is there stays, and says why.
    if (panel.isKept()) return panel.close();
    this.#many = { text: this.#text, form: openMany(this.#search, this.list.records, () => this.refresh()) };
  }

  // Once the list is that of the new search, because the form takes words as what they have found.
  #tellMany() {
    if (!this.#many?.form.node.isConnected) this.#many = null;
    this.#many?.form.tellOtherSearch(this.#many.text === this.#text ? null : () => this.#openMany());
  }

  // A record beside the list that a new search has not found would be taken for its answer.
  #closeOther() {
    const { topic, handle, id } = this.#opened ?? {};
    const isListed = this.list.records.some((record) => record.topic === topic && (handle ? record.handle === handle : record.id === id));
    if (this.#isOther && this.#opened && !isListed && !isEmpty(this.#search)) panel.close();
    this.#isOther = false;
  }

  #open(record) {
    const hash = `${recordHash("pending", record)}${this.#text ? `?q=${encodeURIComponent(this.#text)}` : ""}`;
    // A step in the browser's history: on a phone the way back closes the record.
    if (location.hash === hash) this.#showRecord(record);
    else location.hash = hash;
  }

  #showRecord(record) {
    if (sameRecord(this.#opened, record) && panel.isOpen()) return;
    this.#opened = record;
    this.list.mark(record.handle);
    openRecord(record, {
      known: this.list.records.find(({ handle }) => handle === record.handle) ?? null,
      onChange: () => setTimeout(() => this.refresh(), 100),
      onClose: () => {
        if (!sameRecord(this.#opened, record)) return;
        this.#opened = null;
        this.list.mark(null);
        if (this.#visible) history.replaceState(null, "", `#pending${this.#text ? `?q=${encodeURIComponent(this.#text)}` : ""}`);
      },
    });
  }
}

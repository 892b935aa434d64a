// The figures that the broker sends while the page is open: one event stream, and the figures of the last hour: those that the broker has noted
// before, and those that are made of the stream.

import { loggedIn, refusalOf } from "./api.js";
import { whyBehind } from "./health.js";

const history_ms = 3_600_000;
// Older points are as far apart as the broker keeps them.
const recent_ms = 600_000;
const older_apart_ms = 10_000;
// The broker notes a point each second while something moves, and each five seconds while something is pending; in a longer time
// nothing has moved until its last second.
const quiet_ms = 10_000;
// The broker sends something every second; after this silence the connection counts as lost.
const silence_ms = 8000;
// A broker that answers begins a stream at once; one of which nothing comes for this long is opened again.  Longer, because the first figures may take a while.
const opening_ms = 15_000;
// A stream takes one of the browser's six connections to the broker: a hidden page gives it back.
const hidden_ms = 10_000;

class Live extends EventTarget {
  // The last event of each kind, as docs/http.md describes it.
  status = null;
  due = null;
  topics = null;
  groups = null;
  wheel = null;
  clients = null;
  // The status before the last one, and the seconds between them; null if no rate can be told.
  before = null;
  seconds = null;
  // Points {at, follows, pending, overdue, p50, p99, max, delivered, requests, received, sent, appended, journal, fsyncs, cpu, free}; rates are per second, null
  // where they are not known.  `follows`: the broker has watched since the point before, however long that is.
  history = [];
  // live, lost, or paused while the page is hidden; since when, by the browser's clock.
  state = "connecting";
  since = Date.now();
  begun = Date.now();  // When the page was opened.
  // Why the broker sends no events although it answers; null: it does not say.
  reason = null;
  // The last stream was neither answered nor refused.
  isUnanswered = false;
  // The broker that the page found where another run of it had been: {at, uptime_ms, version, hasOtherPage}; null: none, or it was dismissed.
  restarted = null;
  // When a delivery was last refused, by the broker's clock; null: none was since the page was opened.
  refusedAt = null;
  // How far the broker's clock is ahead of the browser's.
  skew = 0;

  #version = null;  // Of the broker that this page is from.
  #source = null;
  #hasBegun = false;  // Something came of this source.
  #retry = null;
  #hide = null;
  #attempts = 0;
  #heard = 0;

  now() {
    return Date.now() + this.skew;
  }

  async start() {
    setInterval(() => {
      // A source that is neither answered nor refused tells nobody, however long it takes.
      if (this.#source && performance.now() - this.#heard > (this.#hasBegun ? silence_ms : opening_ms)) this.#lost(!this.#hasBegun);
      this.dispatchEvent(new Event("tick"));
    }, 1000);
    document.addEventListener("visibilitychange", () => {
      clearTimeout(this.#hide);
      if (document.hidden) {
        this.#hide = setTimeout(() => {
          this.#close();
          this.#become("paused");
        }, hidden_ms);
      } else if (this.state === "paused") {
        this.#open();
      }
    });
    window.addEventListener("online", () => this.state === "lost" && this.#open());
    await loggedIn();
    if (this.state === "connecting") this.#open();
  }

  #become(state) {
    if (this.state === state) return;
    this.state = state;
    this.since = Date.now();
    this.dispatchEvent(new Event("state"));
  }

  #close() {
    clearTimeout(this.#retry);
    this.#source?.close();
    this.#source = null;
  }

  #open() {
    this.#close();
    const source = new EventSource("/events");
    this.#source = source;
    this.#hasBegun = false;
    this.#heard = performance.now();
    const listen = (name, take) => source.addEventListener(name, (event) => {
      this.#heard = performance.now();
      this.#hasBegun = true;
      this.#attempts = 0;
      this.reason = null;
      this.isUnanswered = false;
      this.#become("live");
      take(JSON.parse(event.data));
    });
    listen("status", (status) => this.#takeStatus(status));
    for (const name of ["due", "topics", "groups", "wheel", "clients"]) {
      listen(name, (data) => {
        this[name] = data;
        this.dispatchEvent(new Event(name));
      });
    }
    listen("history", (history) => this.#takeHistory(history.points));
    source.onerror = () => this.#lost();
  }

  #lost(isUnanswered = false) {
    this.#close();
    this.isUnanswered = isUnanswered;
    this.#become("lost");
    const pause = Math.min(10_000, 500 * 2 ** this.#attempts++);
    this.#retry = setTimeout(async () => {
      // An event stream does not tell why it failed.
      await loggedIn();
      if (this.#attempts > 2) this.reason = await refusalOf("/events");
      if (this.state === "lost") this.#open();
    }, pause);
  }

  #takeStatus(status) {
    this.skew = status.at_ms - Date.now();
    // A broker that was restarted counts from 0 again, and a rate over a long gap says nothing about now.
    const before = this.status?.start_id === status.start_id ? this.status : null;
    const isOther = this.status !== null && before === null;
    if (isOther) {
      this.restarted = { at: status.at_ms - status.uptime_ms, uptime_ms: status.uptime_ms, version: status.version, hasOtherPage: this.#version !== status.version };
      this.refusedAt = null;
    }
    this.#version ??= status.version;
    this.status = status;
    if (before && status.delayed.refused_total > before.delayed.refused_total) this.refusedAt = status.at_ms;
    const passed = before ? (status.uptime_ms - before.uptime_ms) / 1000 : 0;
    const seconds = passed > 0 && passed < 30 ? passed : null;
    this.before = before;
    this.seconds = seconds;
    const rate = (read) => {
      if (seconds === null) return null;
      const [now, then] = [read(status), read(before)];
      return now === undefined || then === undefined || now < then ? null : (now - then) / seconds;
    };
    const sum = (name) => (from) => from.shards.reduce((total, shard) => total + (shard[name] ?? 0), 0);
    const { delayed } = status;
    this.history.push({
      at: status.at_ms, pending: delayed.pending, overdue: delayed.overdue,
      p50: delayed.lag_ms.p50, p99: delayed.lag_ms.p99, max: delayed.lag_ms.max,
      delivered: rate((from) => from.delayed.delivered_total),
      requests: rate((from) => from.requests_total),
      received: rate((from) => from.received_bytes_total),
      sent: rate((from) => from.sent_bytes_total),
      appended: rate((from) => from.appended_records_total),
      journal: rate(sum("journal_bytes_total")),
      fsyncs: rate(sum("fsyncs_total")),
      cpu: rate((from) => from.process.cpu_seconds),
      free: status.storage.free_bytes ?? null,
    });
    this.#forget();
    if (isOther) this.dispatchEvent(new Event("restart"));
    this.dispatchEvent(new Event("status"));
  }

  dismissRestart() {
    this.restarted = null;
  }

  // The points that the broker noted before this page was opened; after a reconnection, those that the page missed.
  #takeHistory(points) {
    const known = this.history.map((point) => point.at);
    const [first, last] = [known[0] ?? Infinity, known.at(-1) ?? -Infinity];
    const made = points.flatMap((point, place) => {
      const before = points[place - 1];
      const passed_ms = before ? point.at_ms - before.at_ms : 0;
      const seconds = passed_ms > quiet_ms ? 1 : passed_ms / 1000;
      const rate = (name) => (seconds > 0 && point[name] >= before[name] ? (point[name] - before[name]) / seconds : null);
      const noted = {
        at: point.at_ms, follows: place > 0, pending: point.pending, overdue: point.overdue, ...point.lag_ms,
        delivered: rate("delivered_total"), requests: rate("requests_total"), received: rate("received_bytes_total"), sent: rate("sent_bytes_total"),
        appended: rate("appended_records_total"), journal: rate("journal_bytes_total"), fsyncs: rate("fsyncs_total"), cpu: rate("cpu_seconds"), free: point.free_bytes ?? null,
      };
      const still = { ...noted, pending: before?.pending, overdue: before?.overdue, ...before?.lag_ms, ...Object.fromEntries(["delivered", "requests", "received", "sent", "appended", "journal", "fsyncs", "cpu"].map((name) => [name, 0])) };
      return passed_ms > quiet_ms ? [{ ...still, at: before.at_ms + 1000 }, { ...still, at: point.at_ms - 1000 }, noted] : [noted];
    });
    this.history = [...made.filter(({ at }) => at < first), ...this.history, ...made.filter(({ at }) => at > last && last > 0)];
    this.#forget();
    this.dispatchEvent(new Event("status"));
  }

  #forget() {
    const now = this.now();
    const end = this.history.findIndex(({ at }) => at >= now - recent_ms);
    if (end <= 0) return;
    const older = [];
    for (const point of this.history.slice(0, end)) {
      const last = older.at(-1);
      if (point.at < now - history_ms) continue;
      if (!last || point.at - last.at >= older_apart_ms) older.push(point);
      else if (point.overdue > last.overdue) older[older.length - 1] = { ...last, overdue: point.overdue };
    }
    this.history.splice(0, end, ...older);
    // Now they are further apart than points that nobody watched in between.
    for (let place = 1; place <= older.length; ++place) this.history[place].follows ||= this.history[place].at - this.history[place - 1].at < 2 * older_apart_ms;
  }
}

export const live = new Live();

// The last rate that is known.
export const lastRate = (name) => live.history.findLast((point) => point[name] !== null)?.[name] ?? null;

// How long the oldest overdue record has been due; null: none is overdue.
export function oldestOverdue() {
  const delayed = live.status?.delayed;
  return delayed?.overdue && delayed.next_due !== null ? Math.max(0, live.now() - delayed.next_due) : null;
}

// After so long it is not only the turn of a busy broker that an overdue record waits for.
export const stuck_ms = 5000;
export const isStuck = () => (oldestOverdue() ?? 0) >= stuck_ms;

// Why records of partitions that are well stay overdue, as sentences.
export const whyLate = () => (live.status ? whyBehind({ status: live.status, delivered: lastRate("delivered"), refusedAt: live.refusedAt, now: live.now() }) : "");

// The time until the next record is due that is not overdue, as precise as the pictures while others are; null: there is none;
// undefined: it is not known.
export function nextDueIn() {
  const delayed = live.status?.delayed;
  if (!delayed) return undefined;
  if (delayed.next_due === null || delayed.next_due === undefined) return null;
  const left = delayed.next_due - live.now();
  if (!delayed.overdue || left > -1000) return left;
  for (const { from, bucket_ms, until, counts, other } of live.due?.spans ?? []) {
    const rows = [...Object.values(counts ?? {}), other ?? []];
    const place = Array.from({ length: Math.ceil((until - from) / bucket_ms) }).findIndex((_, at) => rows.some((row) => row[at] > 0));
    if (place >= 0) return Math.max(0, from + place * bucket_ms - live.now());
  }
  return delayed.pending > delayed.overdue ? undefined : null;
}

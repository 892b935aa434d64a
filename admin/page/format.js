// Numbers, sizes, durations and times for people, and back.

const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const integer = (n) => (n === null || n === undefined ? "–" : whole.format(Math.round(n)));
export const compact = (n) => (n < 10_000 ? whole.format(Math.round(n)) : short.format(n));
export const plural = (n, one, many = `${one}s`) => `${integer(n)} ${n === 1 ? one : many}`;

export function decimal(n) {
  if (n === 0) return "0";
  const size = Math.abs(n);
  if (size >= 100) return whole.format(Math.round(n));
  return size >= 0.01 ? n.toFixed(size >= 10 ? 1 : 2).replace(/\.?0+$/, "") : "<0.01";
}

export function rate(n) {
  if (n === null || n === undefined) return "–";
  return `${n > 0 && n < 10 ? n.toFixed(1).replace(/\.0$/, "") : compact(n)}/s`;
}

export function bytes(n) {
  if (n === null || n === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (n >= 1024 && unit < units.length - 1) {
    n /= 1024;
    ++unit;
  }
  return `${unit === 0 || n >= 100 ? Math.round(n) : n.toFixed(1)} ${units[unit]}`;
}

// In powers of ten, for the axis of a chart.
export function decimalBytes(n) {
  const power = n >= 1e9 ? 3 : n >= 1e6 ? 2 : n >= 1e3 ? 1 : 0;
  return `${decimal(n / 1000 ** power)} ${["B", "kB", "MB", "GB"][power]}`;
}

export function milliseconds(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms === 0) return "0 ms";
  if (ms < 1000) return `${ms < 10 ? decimal(ms) : Math.round(ms)} ms`;
  return ms < 10_000 ? `${(ms / 1000).toFixed(1).replace(/\.0$/, "")} s` : duration(ms);
}

const units = [["d", 86_400_000], ["h", 3_600_000], ["m", 60_000], ["s", 1000]];

// The two largest units: 3d 4h, 12m 5s, 8s.
export function duration(ms) {
  const sign = ms < 0 ? "−" : "";
  let left = Math.abs(ms);
  if (left < 1000) return `${sign}${Math.round(left)} ms`;
  if (left >= 400 * 86_400_000) return `${sign}${(left / (365.25 * 86_400_000)).toFixed(1)} years`;
  left = Math.floor(left / 1000) * 1000;
  const first = units.findIndex(([, size]) => left >= size);
  const parts = [];
  for (const [name, size] of units.slice(first, first + 2)) {
    const count = Math.floor(left / size);
    left -= count * size;
    if (count) parts.push(`${count}${name}`);
  }
  return sign + parts.join(" ");
}

// "in 3m 10s", "due now", "4s overdue".
export function until(ms) {
  if (ms > 999) return `in ${duration(ms)}`;
  if (!isOverdue(ms)) return "due now";
  return `${duration(-ms)} overdue`;
}

export const isOverdue = (ms) => ms <= -1000;

export const zone = new Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";

const day = new Intl.DateTimeFormat("en-GB", { weekday: "short", day: "2-digit", month: "short", year: "numeric" });
const dayOnly = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const time = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const minute = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const offset = new Intl.DateTimeFormat("en-GB", { timeZoneName: "short" });

// The zone's short name depends on summer time, so on the moment: CET, Europe/Berlin.
export function zoneAt(ms) {
  const name = offset.formatToParts(ms).find((part) => part.type === "timeZoneName")?.value;
  return !name || name === zone ? zone : `${name}, ${zone}`;
}

export const dateOf = (ms) => day.format(ms).replace(",", "");
export const dayAndMonth = (ms) => dayOnly.format(ms);
export const timeOf = (ms) => time.format(ms);
export const minuteOf = (ms) => minute.format(ms);
export const millisOf = (ms) => `${time.format(ms)}.${String(((ms % 1000) + 1000) % 1000).padStart(3, "0")}`;
export const fullTime = (ms) => `${dateOf(ms)}, ${millisOf(ms)}`;
export const isoTime = (ms) => {
  const date = new Date(ms);
  return Number.isNaN(date.getTime()) ? "" : date.toISOString();
};

// The date is left out of what is today.
export function nearTime(ms, now) {
  const date = new Date(ms);
  return date.toDateString() === new Date(now).toDateString() ? timeOf(ms)
    : `${dayAndMonth(ms)}${date.getFullYear() === new Date(now).getFullYear() ? "" : ` ${date.getFullYear()}`}, ${timeOf(ms)}`;
}

const lengths = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000, w: 7 * 86_400_000 };

// 90s, 1h30m, PT1H30M, with a sign; null if it is none.
export function parseDuration(text) {
  let rest = text.trim().replace(/^in\s+/i, "");
  const sign = /^[-−]/.test(rest) ? -1 : 1;
  rest = rest.replace(/^[-+−]\s*/, "");
  const iso = /^P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?$/i.exec(rest);
  if (iso && iso.slice(1).some(Boolean)) {
    const [days, hours, minutes, seconds] = iso.slice(1).map((part) => Number(part ?? 0));
    return sign * (days * lengths.d + hours * lengths.h + minutes * lengths.m + Math.round(seconds * 1000));
  }
  if (!/^(\d+(\.\d+)?\s*(ms|s|m|h|d|w)\s*)+$/.test(rest)) return null;
  let sum = 0;
  for (const [, count, unit] of rest.matchAll(/(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)/g)) sum += Number(count) * lengths[unit];
  return sign * Math.round(sum);
}

// A moment, or the span that is meant by a date, a minute or a month: {from, to}; null if it is none.
// Without an offset the browser's zone is meant.
export function parseTime(text, now) {
  const words = text.trim().toLowerCase().replace(/\s+/g, " ");
  const today = new Date(now);
  const local = (...parts) => new Date(...parts).getTime();
  const dayFrom = (shift) => ({
    from: local(today.getFullYear(), today.getMonth(), today.getDate() + shift),
    to: local(today.getFullYear(), today.getMonth(), today.getDate() + shift + 1),
  });
  if (words === "now") return { from: now, to: now + 1 };
  if (words === "today") return dayFrom(0);
  if (words === "tomorrow") return dayFrom(1);
  const that_day = /^(today|tomorrow) (\d{1,2}):(\d{2})(?::(\d{2}))?$/.exec(words);
  if (that_day) {
    const [hours, minutes, seconds] = that_day.slice(2).map((part) => Number(part ?? 0));
    if (hours > 23 || minutes > 59 || seconds > 59) return null;
    const from = local(today.getFullYear(), today.getMonth(), today.getDate() + (that_day[1] === "tomorrow" ? 1 : 0), hours, minutes, seconds);
    return { from, to: from + (that_day[4] === undefined ? 60_000 : 1000) };
  }
  const clock = /^(\d{1,2}):(\d{2})(?::(\d{2}))?$/.exec(words);
  if (clock) {
    const [hours, minutes, seconds] = clock.slice(1).map((part) => Number(part ?? 0));
    if (hours > 23 || minutes > 59 || seconds > 59) return null;
    const length = clock[3] === undefined ? 60_000 : 1000;
    let from = local(today.getFullYear(), today.getMonth(), today.getDate(), hours, minutes, seconds);
    if (from + length <= now) from = local(today.getFullYear(), today.getMonth(), today.getDate() + 1, hours, minutes, seconds);
    return { from, to: from + length };
  }
  if (/^\d{12,14}$/.test(words)) return { from: Number(words), to: Number(words) + 1 };
  const date = /^(\d{4})-(\d{2})(?:-(\d{2})(?:[t ](\d{1,2})(?::(\d{2})(?::(\d{2})(\.\d{1,3})?)?)?\s*(z|[+-]\d{2}:?\d{2})?)?)?$/.exec(words);
  if (!date) return null;
  const [year, month, dayOfMonth, hours, minutes, seconds] = date.slice(1, 7).map((part) => (part === undefined ? undefined : Number(part)));
  if (month < 1 || month > 12 || dayOfMonth === 0 || dayOfMonth > 31 || hours > 23 || minutes > 59 || seconds > 59) return null;
  const millis = date[7] === undefined ? 0 : Math.round(Number(date[7]) * 1000);
  if (date[8] === undefined) {
    const from = local(year, month - 1, dayOfMonth ?? 1, hours ?? 0, minutes ?? 0, seconds ?? 0, millis);
    if (dayOfMonth === undefined) return { from, to: local(year, month, 1) };
    if (hours === undefined) return { from, to: local(year, month - 1, dayOfMonth + 1) };
    return { from, to: from + precision(minutes, seconds, date[7]) };
  }
  const shift = date[8] === "z" ? 0 : (date[8][0] === "-" ? -1 : 1) * (Number(date[8].slice(1, 3)) * 60 + Number(date[8].slice(-2)));
  const from = Date.UTC(year, month - 1, dayOfMonth, hours, minutes ?? 0, seconds ?? 0, millis) - shift * 60_000;
  return { from, to: from + precision(minutes, seconds, date[7]) };
}

function precision(minutes, seconds, fraction) {
  return minutes === undefined ? 3_600_000 : seconds === undefined ? 60_000 : fraction === undefined ? 1000 : 1;
}

// A moment as somebody would type it, in the browser's zone; with an offset where that would mean another one: an hour that comes twice.
export function typedTime(ms) {
  const local = new Date(ms - new Date(ms).getTimezoneOffset() * 60_000).toISOString().slice(0, -1).replace("T", " ");
  const text = local.replace(/\.000$/, "").replace(/:00$/, "");
  return parseTime(text, ms)?.from === ms ? text : isoTime(ms);
}

// A moment for an action: a time, or a duration from now.
export function parseMoment(text, now) {
  const length = parseDuration(text);
  if (length !== null) return now + length;
  return parseTime(text, now)?.from ?? null;
}

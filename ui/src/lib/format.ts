/** Numbers, sizes and times, as every page writes them. */

const COUNT = new Intl.NumberFormat('en');
export const count = (value: number): string => COUNT.format(value);

const SIZES = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

export function bytes(value: number): string {
  let at = 0;
  while (value >= 1024 && at < SIZES.length - 1) {
    value /= 1024;
    at += 1;
  }
  return `${value >= 100 || at === 0 || Number.isInteger(value) ? Math.round(value) : value.toFixed(1)} ${SIZES[at]}`;
}

export const percent = (share: number): string => {
  const value = share * 100;
  return `${value > 0 && value < 10 ? value.toFixed(1) : Math.round(value)}%`;
};

/** 45 s, 3 min, 2 h 5 min, 4 d 3 h: two units at most. */
export function duration(seconds: number): string {
  const s = Math.max(0, seconds);
  if (s < 10) return `${s < 1 ? s.toFixed(1) : Math.floor(s)} s`;
  if (s < 90) return `${Math.floor(s)} s`;
  const min = Math.floor(s / 60);
  if (min < 90) return min < 10 && s % 60 >= 1 ? `${min} min ${Math.floor(s % 60)} s` : `${min} min`;
  const h = Math.floor(min / 60);
  if (h < 48) return min % 60 ? `${h} h ${min % 60} min` : `${h} h`;
  const d = Math.floor(h / 24);
  return h % 24 && d < 10 ? `${d} d ${h % 24} h` : `${d} d`;
}

/** How long ago: one unit, so that a column of a table holds it. */
export function age(seconds: number): string {
  if (seconds < 90) return `${Math.max(0, Math.floor(seconds))} s`;
  if (seconds < 90 * 60) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 48 * 3600) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / DAY_S)} d`;
}

const DAY_S = 86_400;
const two = (value: number): string => String(value).padStart(2, '0');

/** The hour of today, or the day: 14:03:22, 17 Nov 14:03, 2025-11-17. In the reader's time zone. */
export function clock(at: number, now: number = Date.now() / 1000): string {
  const when = new Date(at * 1000);
  const time = `${two(when.getHours())}:${two(when.getMinutes())}`;
  const today = new Date(now * 1000);
  if (when.toDateString() === today.toDateString()) return `${time}:${two(when.getSeconds())}`;
  if (Math.abs(now - at) < 300 * DAY_S) return `${when.getDate()} ${when.toLocaleString('en', { month: 'short' })} ${time}`;
  return `${when.getFullYear()}-${two(when.getMonth() + 1)}-${two(when.getDate())}`;
}

/** The full instant, for a title: 2026-11-18 14:03:22.123 UTC. */
export const instant = (at: number): string => `${new Date(at * 1000).toISOString().replace('T', ' ').replace('Z', '')} UTC`;

export const plural = (number: number, one: string, many = `${one}s`): string => `${count(number)} ${number === 1 ? one : many}`;

/** Words of a shell command, quoted where a shell would need it. */
export const shellWords = (command: readonly string[]): string =>
  command.map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`)).join(' ');

// Time. Leases end by the store's clock, whatever this machine's clock shows.

/** How far the store's clock is ahead of this one, in ms. */
let ahead = 0;

const storeNow = () => Date.now() + ahead;

/** Converts a time from the market (ms since 1970, or a date) to ms. */
function instant(value) {
  if (typeof value === "number") return value;
  const parsed = Date.parse(value);
  return Number.isNaN(parsed) ? null : parsed;
}

/** `7 s`, `1:05 min` or `2:00:09 h`. */
function lasting(ms) {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  const two = (number) => String(number).padStart(2, "0");
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes}:${two(seconds % 60)} min`;
  return `${Math.floor(minutes / 60)}:${two(minutes % 60)}:${two(seconds % 60)} h`;
}

/** Functions that redraw as time passes. Each runs four times a second while the page is visible. */
const ticking = new Set();

setInterval(() => {
  if (!document.hidden) ticking.forEach((tick) => tick());
}, 250);

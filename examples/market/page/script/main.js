// The watched account, the theme, and the start of the page.

let watched = null;
let feed = null;

/** Watches another account and drops everything about the previous one. */
function watch(account) {
  feed?.close();
  watched = account;
  setText(byId("watched"), account);
  byId("account").value = account;
  slots = [];
  forgetRefusals();
  showPermits({ held: [], waiting: [] });
  drawStreams();
  showAccount();
  feed = new Feed(account, {
    market: showMarket,
    permits: (usage) => {
      setState("live");
      showPermits(usage);
    },
    unavailable: () => setState("stale"),
    refusal: showRefusal,
    listings: showListings,
    listing: addListing,
    trade: showTrade,
  }, setState);
}

function showMarket(settings) {
  market = { ...market, ...settings };
  const where = market.store === "memory" ? "State in the memory of this process" : "State in Redis, for all processes";
  const lease = market.store === "memory" ? "" : `a lease lasts ${market.lease_ms / 1000} s`;
  const wait = market.wait_ms ? `a request waits for up to ${market.wait_ms / 1000} s` : "a request does not wait";
  const shadow = market.shadow ? "in shadow: nobody is refused" : "";
  setText(byId("facts"), [where, lease, wait, shadow].filter(Boolean).join(" · "));
  setText(byId("open-many"), `Open ${market.limit + 1}`);
  byId("open-many").ariaLabel = `Open ${market.limit + 1} streams at once`;
  byId("open-many").hidden = market.limit > MOST_SLOTS;
  showPermits({ held: slots.filter(Boolean), waiting: [] });
  showAccount();
}

const STATES = {
  live: "live",
  connecting: "connecting",
  gone: "the market does not answer",
  stale: "the store does not answer",
};

function setState(state) {
  byId("connection").dataset.state = state === "stale" ? "gone" : state;
  setText(byId("connection-text"), STATES[state]);
  byId("slots").classList.toggle("stale", state !== "live");
}

/** An account's name that fits into a URL. */
function nameFrom(text) {
  // A URL treats `.` and `..` as steps in a path, even when they are escaped, and cannot encode half a character.
  const fits = text !== "" && text !== "." && text !== ".." && text.isWellFormed?.() !== false;
  byId("account").setCustomValidity(fits ? "" : "This cannot be part of a URL");
  return fits ? text : null;
}

function submitAccount(event) {
  event.preventDefault();
  const account = nameFrom(byId("account").value);
  if (account === null) return byId("account").reportValidity();
  history.pushState(null, "", `?account=${encodeURIComponent(account)}`);
  watch(account);
}

/** The account in the page's own URL, so that a link leads to it. A `+` stands for itself, as it does in the market. */
const fromUrl = () => nameFrom(new URLSearchParams(location.search.replaceAll("+", "%2B")).get("account") ?? "") ?? "ann";

const THEMES = ["auto", "light", "dark"];

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  setText(byId("theme"), `Theme: ${theme}`);
  try {
    localStorage.setItem("theme", theme);
  } catch {
    // A browser without storage does not remember the theme.
  }
}

function storedTheme() {
  try {
    return THEMES.find((theme) => theme === localStorage.getItem("theme")) ?? "auto";
  } catch {
    return "auto";
  }
}

byId("account-form").addEventListener("submit", submitAccount);
byId("account").addEventListener("input", () => byId("account").setCustomValidity(""));
byId("stream-form").addEventListener("submit", (event) => {
  event.preventDefault();
  open(watched, byId("duration").value);
});
byId("open-many").addEventListener("click", () => {
  for (let each = 0; each <= market.limit; each += 1) open(watched, byId("duration").value);
});
byId("sell-form").addEventListener("submit", sell);
byId("theme").addEventListener("click", () => {
  setTheme(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length]);
});
// A browser may keep a page after the visitor has left it. Its streams would then hold their permits.
addEventListener("pagehide", () => {
  feed.close();
  [...streams.values()].forEach(close);
});
addEventListener("pageshow", (event) => {
  if (event.persisted) watch(watched);
});
addEventListener("popstate", () => watch(fromUrl()));
document.documentElement.classList.add("scripted");
setTheme(storedTheme());
watch(fromUrl());

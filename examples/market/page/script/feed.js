// The market's feed: one stream of server-sent events for the watched account.

/** Host names of this machine. */
const loopback = /^(localhost|.+\.localhost|127(\.\d+){3})$/;

/**
 * The URL of a path, at a separate host name if possible. A browser opens six HTTP/1.1 connections
 * to a host, and each stream occupies one. Every name under `localhost` is this machine.
 */
function elsewhere(path) {
  if (location.protocol !== "http:" || !loopback.test(location.hostname)) return path;
  const name = crypto.getRandomValues(new Uint32Array(1))[0].toString(36);
  return `http://s${name}.localhost:${location.port || 80}${path}`;
}

/** Fetches through a separate host name, or through this one if that fails. */
async function reach(path, options) {
  try {
    return await fetch(elsewhere(path), options);
  } catch (error) {
    if (options.signal?.aborted) throw error;
    return fetch(path, options);
  }
}

const pathOf = (account, rest = "") => `/accounts/${encodeURIComponent(account)}${rest}`;

/** The events of one account, until the feed is closed. Reconnects whenever the connection breaks. */
class Feed {
  #source = null;
  #timer = null;
  #tries = 0;

  constructor(account, handlers, onState) {
    this.path = pathOf(account, "/events");
    this.handlers = handlers;
    this.onState = onState;
    this.#connect();
  }

  close() {
    clearTimeout(this.#timer);
    this.#source?.close();
  }

  /** Reconnects, to receive the complete state again. */
  renew() {
    this.close();
    this.#connect();
  }

  #connect() {
    // Every other attempt uses this host, for browsers that cannot resolve the other names.
    const url = this.#tries % 2 ? this.path : elsewhere(this.path);
    const source = new EventSource(url);
    this.#source = source;
    source.onopen = () => {
      this.#tries = 0;
      this.onState("live");
    };
    source.onerror = () => this.#again(source);
    for (const [name, handle] of Object.entries(this.handlers)) {
      source.addEventListener(name, (event) => handle(JSON.parse(event.data)));
    }
  }

  /** Reconnects by hand, because an `EventSource` gives up if an answer is not a stream. */
  #again(source) {
    source.close();
    this.#tries += 1;
    this.onState(this.#tries > 1 ? "gone" : "connecting");
    this.#timer = setTimeout(() => this.#connect(), Math.min(250 * this.#tries, 3000));
  }
}

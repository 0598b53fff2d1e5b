// What the market pushes: one stream of server-sent events for the account that is watched.

/** Names of this machine in a URL. */
const loopback = /^(localhost|.+\.localhost|127(\.\d+){3})$/;

/**
 * The URL of a path, at a host name of its own where that is possible. A browser opens six
 * HTTP/1.1 connections to a host, and each stream takes one; but every name under `localhost` is
 * this machine.
 */
function elsewhere(path) {
  if (location.protocol !== "http:" || !loopback.test(location.hostname)) return path;
  const name = crypto.getRandomValues(new Uint32Array(1))[0].toString(36);
  return `http://s${name}.localhost:${location.port || 80}${path}`;
}

/** Fetches from a host of its own; if there is no such host, from this one. */
async function reach(path, options) {
  try {
    return await fetch(elsewhere(path), options);
  } catch (error) {
    if (options.signal?.aborted) throw error;
    return fetch(path, options);
  }
}

const pathOf = (account, rest = "") => `/accounts/${encodeURIComponent(account)}${rest}`;

/** The events of one account, until it is closed. Connects again whenever it is cut off. */
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

  /** Connects again, to be told everything anew. */
  renew() {
    this.close();
    this.#connect();
  }

  #connect() {
    // Every other try at this host, for a browser that does not know the others.
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

  /** By hand: an `EventSource` gives up for good where an answer is no stream. */
  #again(source) {
    source.close();
    this.#tries += 1;
    this.onState(this.#tries > 1 ? "gone" : "connecting");
    this.#timer = setTimeout(() => this.#connect(), Math.min(250 * this.#tries, 3000));
  }
}

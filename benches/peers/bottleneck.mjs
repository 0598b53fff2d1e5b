// Bottleneck over Redis. A job is a permit; a dead client's jobs end after its `clientTimeout`.
// `node bottleneck.mjs URL …`, with FOUR=1 under four limits: chained limiters, from narrow to wide.

import Bottleneck from "bottleneck";
import { Redis } from "ioredis";
import { drive } from "./drive.mjs";

const wider = process.env.FOUR ? ["route", "model", "fleet"] : [];

const limiters = new Map();
const limiter = (id, maxConcurrent) => {
  if (!limiters.has(id)) {
    const client = new Redis(process.argv[2]);
    const connection = new Bottleneck.IORedisConnection({ client });
    limiters.set(id, new Bottleneck({ id, maxConcurrent, connection, timeout: 60000 }));
  }
  return limiters.get(id);
};

// Each limiter passes its jobs to the next one, and counts them until they are done there.
const chain = (key, limit) => {
  const [first, ...others] = [key, ...wider].map((id) => limiter(id, limit));
  others.reduce((narrow, wide) => { narrow.chain(wide); return wide; }, first);
  return first;
};

await drive(async (key, limit) => {
  let release;
  let done;
  await new Promise((granted) => {
    done = chain(key, limit).schedule(
      () => new Promise((end) => { release = end; granted(); }),
    );
  });
  return async () => { release(); await done; };
});

// Bottleneck over Redis. A job is a permit; a dead client's jobs end after its `clientTimeout`.

import Bottleneck from "bottleneck";
import { Redis } from "ioredis";
import { drive } from "./drive.mjs";

const limiters = new Map();
const limiter = (id, maxConcurrent) => {
  if (!limiters.has(id)) {
    const client = new Redis(process.argv[2]);
    const connection = new Bottleneck.IORedisConnection({ client });
    limiters.set(id, new Bottleneck({ id, maxConcurrent, connection, timeout: 60000 }));
  }
  return limiters.get(id);
};

await drive(async (key, limit) => {
  let release;
  let done;
  await new Promise((granted) => {
    done = limiter(key, limit).schedule(
      () => new Promise((end) => { release = end; granted(); }),
    );
  });
  return async () => { release(); await done; };
});

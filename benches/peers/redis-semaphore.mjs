// npm's redis-semaphore, with a lease of 10 s and default settings otherwise.

import { Redis } from "ioredis";
import { Semaphore } from "redis-semaphore";
import { drive } from "./drive.mjs";

const client = new Redis(process.argv[2]);
await drive(async (key, limit) => {
  const semaphore = new Semaphore(client, key, limit, { lockTimeout: 10000, acquireTimeout: 60000 });
  await semaphore.acquire();
  return () => semaphore.release();
});

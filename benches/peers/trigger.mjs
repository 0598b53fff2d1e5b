// trigger.dev's fair queue: deficit round robin over tenants, and one group whose limit of 5 all share.
// `node trigger.mjs URL newcomer KEY`

import { DefaultFairQueueKeyProducer, DRRScheduler, FairQueue, WorkerQueueManager } from "@trigger.dev/redis-worker";
import { newcomer } from "./drive.mjs";

const [, , url, , prefix] = process.argv;
const { hostname: host, port } = new URL(url);
const redis = { host, port: Number(port) };
const keys = new DefaultFairQueueKeyProducer({ prefix });
const group = (name, id, limit) => ({ name, extractGroupId: id, getLimit: async () => limit, defaultLimit: limit });
const log = () => {};
const logger = { debug: log, info: log, warn: log, error: console.error };
const queue = new FairQueue({
  redis,
  keys,
  logger,
  scheduler: new DRRScheduler({ redis, keys, quantum: 1, maxDeficit: 50 }),
  // The scheduler requires a group with this name.
  concurrencyGroups: [group("tenant", (queue) => queue.tenantId, 1000), group("fleet", () => "all", 5)],
  workerQueue: { resolveWorkerQueue: () => "jobs" },
  consumerIntervalMs: 10,
});

const jobs = new Map();
const workers = new WorkerQueueManager({ redis, keys });
const work = async () => {
  for (;;) {
    const message = await workers.blockingPop("jobs", 1);
    if (!message) continue;
    // A message is `ID:QUEUE`, and the queue's id has colons too.
    const [id, queueId] = message.split(/:(.*)/s);
    await jobs.get(id)();
    await queue.completeMessage(id, queueId);
  }
};
// More workers than the five permits.
for (let count = 0; count < 10; count += 1) work();

console.log(await newcomer((tenantId, job) => new Promise((done) => {
  const messageId = `${tenantId}${jobs.size}`;
  jobs.set(messageId, async () => { await job(); done(); });
  queue.enqueue({ queueId: `tenant:${tenantId}:queue:jobs`, tenantId, payload: {}, messageId });
})));
process.exit(0);

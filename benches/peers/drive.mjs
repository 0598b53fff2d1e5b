// The measurements of every driver in JavaScript. `take(key, limit)` resolves to a function that releases the permit.

const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

async function pairs(take, key, tasks, seconds) {
  const start = performance.now();
  let count = 0;
  const work = async () => {
    while (performance.now() - start < seconds * 1e3) {
      const release = await take(key, 1000);
      await release();
      count += 1;
    }
  };
  await Promise.all(Array.from({ length: tasks }, work));
  return Math.round((count / (performance.now() - start)) * 1e3);
}

// Fifty contenders 4 ms apart, five permits, 100 ms each: the total time in ms, and the inversions, which are pairs
// that were granted in the opposite order of their arrival.
async function contend(take, key) {
  const start = performance.now();
  const granted = [];
  const contender = async (_, at) => {
    await sleep(4 * at);
    const release = await take(key, 5);
    granted[at] = performance.now();
    await sleep(100);
    const end = performance.now();
    await release();
    return end - start;
  };
  const ends = await Promise.all(Array.from({ length: 50 }, contender));
  let inversions = 0;
  granted.forEach((earlier, at) => {
    inversions += granted.slice(at + 1).filter((later) => later < earlier).length;
  });
  return `${Math.round(Math.max(...ends))} ${inversions}`;
}

export const HOLD = 50;

// A crowd of one tenant's 1,000 jobs under a limit of 5; when 50 have run, another tenant's one job comes. Its wait in
// holds, and how many jobs began before it. `run(tenant, job)` resolves when the job has begun and ended.
export async function newcomer(run) {
  let begun = 0;
  const job = () => { begun += 1; return sleep(HOLD); };
  for (let n = 0; n < 1000; n += 1) run("ann", job);
  while (begun < 50) await sleep(10);
  const [start, before] = [performance.now(), begun];
  let wait;
  let passed;
  await run("bob", () => { wait = performance.now() - start; passed = begun - before; return sleep(HOLD); });
  return `${(wait / HOLD).toFixed(1)} ${passed}`;
}

export async function drive(take) {
  const [, , , what, key, tasks, seconds] = process.argv;
  if (what === "pairs") console.log(await pairs(take, key, Number(tasks), Number(seconds)));
  if (what === "contend") console.log(await contend(take, key));
  if (what === "newcomer") {
    console.log(await newcomer(async (_, job) => {
      const release = await take(key, 5);
      await job();
      await release();
    }));
  }
  if (what === "hold") {
    await take(key, 1);
    console.log(`held ${process.pid}`);
    await sleep(1e6);
  }
  if (what === "wait") {
    const start = performance.now();
    await take(key, 1);
    console.log(((performance.now() - start) / 1e3).toFixed(1));
  }
  process.exit(0);
}

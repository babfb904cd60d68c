// SPDX-License-Identifier: Apache-2.0
// Questions to the agent.

export const PATIENCE = 5000;

/** The agent answered, but not with what was asked for; the message is its own. */
export class Refused extends Error {}

/** The agent did not answer. */
export class Silent extends Error {}

/** The answer's JSON. */
export async function ask(path) {
  let response;
  let body;
  try {
    response = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
    body = await response.json();
  } catch (error) {
    if (error instanceof SyntaxError) throw new Refused(`${path} is no JSON (HTTP ${response.status})`);
    throw new Silent(error.name === "TimeoutError" ? `no answer within ${PATIENCE / 1000} s` : "no connection");
  }
  if (!response.ok) throw new Refused(body.error ?? `HTTP ${response.status}`);
  return body;
}

/** Everything that the page shows, asked for at once: by name, either a value or what was thrown. */
export async function askAll(paths) {
  const names = Object.keys(paths);
  const settled = await Promise.allSettled(names.map((name) => ask(paths[name])));
  const silent = settled.find((one) => one.reason instanceof Silent);
  if (silent) throw silent.reason;
  const strange = settled.find((one) => one.reason && !(one.reason instanceof Refused));
  if (strange) throw strange.reason;
  return Object.fromEntries(
    settled.map((one, index) => [names[index], one.reason ? { error: one.reason.message } : { value: one.value }]),
  );
}

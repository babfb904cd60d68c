// SPDX-License-Identifier: Apache-2.0
// Questions to the agent, which the gateway hands on.

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
  if (body.agent_answers === false) throw new Silent(body.error);
  if (!response.ok) throw new Refused(body.error ?? `HTTP ${response.status}`);
  return body;
}

/**
 * Several answers, by name: each either a value or the agent's words why there is none. They are asked for one after the
 * other, over one connection: the agent has more to do than to answer us.
 */
export async function askAll(paths) {
  const found = {};
  for (const [name, path] of Object.entries(paths)) {
    try {
      found[name] = { value: await ask(path) };
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      found[name] = { error: error.message };
    }
  }
  return found;
}

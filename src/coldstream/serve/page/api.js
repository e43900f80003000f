// Requests to the server: JSON in, JSON out, errors with their reason.

const PATIENCE = 20_000; // milliseconds until a request counts as lost
const AGAIN = new Set([401, 403, 408, 425, 429]); // refusals that may pass: a lost token, a busy server

export class RequestError extends Error {
  /** `status` is 0 if no answer came. */
  constructor(message, status = 0, field = null) {
    super(message);
    this.status = status;
    this.field = field;
  }

  /** Whether the same request may succeed later. */
  get mayPass() {
    return this.status === 0 || this.status >= 500 || AGAIN.has(this.status);
  }
}

async function ask(address, options = {}) {
  let response;
  try {
    response = await fetch(address, {
      ...options,
      credentials: "same-origin",
      redirect: "error",
      signal: options.signal ?? AbortSignal.timeout(PATIENCE),
    });
  } catch {
    throw new RequestError("The server does not answer.");
  }
  let body;
  try {
    body = await response.json();
  } catch {
    throw new RequestError(
      `The server's answer (${response.status}) was cut off.`,
      response.ok ? 0 : response.status,
    );
  }
  if (response.ok) return body;
  throw new RequestError(body.error ?? `The server refused (${response.status}).`, response.status, body.field);
}

export const projects = () => ask("api/projects");

/** The requests of one project. */
export class Api {
  constructor(project) {
    this.base = `api/projects/${encodeURIComponent(project)}`;
  }

  /** The address of `path`, with the parameters in `query`: a value that is an array is repeated. */
  address(path, query = {}) {
    const search = new URLSearchParams();
    for (const [name, value] of Object.entries(query)) {
      for (const one of Array.isArray(value) ? value : [value]) {
        if (one !== null && one !== undefined) search.append(name, one);
      }
    }
    return search.size ? `${this.base}/${path}?${search}` : `${this.base}/${path}`;
  }

  get(path, query) {
    return ask(this.address(path, query));
  }

  post(path, body) {
    return ask(this.address(path), {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
    });
  }

  upload(files) {
    const form = new FormData();
    for (const file of files) form.append("files", file, file.name);
    return ask(this.address("images"), { method: "POST", body: form, signal: AbortSignal.timeout(120_000) });
  }
}

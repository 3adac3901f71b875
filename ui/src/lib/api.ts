/**
 * The REST API, typed by the OpenAPI document: a path, a method or an answer that it does not have is an error of the compiler.
 *
 * The browser's login is a cookie that scripts cannot read. What changes something also needs the CSRF token, which is held in
 * memory only (`session.svelte.ts` sets it). Errors are problem+json and become one `ApiError`.
 *
 * What a page asks again and again it asks with a `Question`: then an answer will do that was made for another page a moment
 * ago, and what the page has already is not sent again.
 */
import type { components, paths } from './schema';

export type Schemas = components['schemas'];
export type Problem = Partial<Schemas['Problem']>;

type Method = 'get' | 'post' | 'put' | 'patch' | 'delete';
type PathsWith<M extends Method> = {
  [P in keyof paths]: paths[P] extends Record<M, infer O> ? (O extends object ? P : never) : never;
}[keyof paths];
type Operation<P extends keyof paths, M extends Method> = paths[P] extends Record<M, infer O> ? O : never;
type Content<R> = R extends { content: { 'application/json': infer J } } ? J : never;
export type Reply<P extends keyof paths, M extends Method> =
  Operation<P, M> extends { responses: infer R } ? Content<R[keyof R & (200 | 201 | 202)]> : never;
type Body<P extends keyof paths, M extends Method> = Operation<P, M> extends { requestBody?: infer B } ? Content<NonNullable<B>> : never;
type Query<P extends keyof paths, M extends Method> = Operation<P, M> extends { parameters: { query?: infer Q } } ? Q : never;
type PathParameters<P extends keyof paths, M extends Method> =
  Operation<P, M> extends { parameters: { path: infer Q } } ? Q : undefined;

interface Options<P extends keyof paths, M extends Method> {
  path?: PathParameters<P, M>;
  query?: NonNullable<Query<P, M>>;
  body?: Body<P, M>;
  signal?: AbortSignal;
}

/** What the coordinator refused, or why it could not be asked (`status` 0). */
export class ApiError extends Error {
  readonly status: number;
  readonly title: string;
  readonly reason: string;
  readonly hint: string;
  /** The field that is wrong, where the sentence begins with one: `gpus = -1: expected …`. */
  readonly field: string;

  constructor(status: number, problem: Problem) {
    const title = problem.title ?? (status ? `HTTP ${status}` : 'The coordinator does not answer');
    super(problem.detail || title);
    this.name = 'ApiError';
    this.status = status;
    this.title = title;
    this.reason = problem.reason ?? '';
    this.hint = problem.hint ?? '';
    this.field = /^([\w.[\]-]{1,80}) = /.exec(problem.detail ?? '')?.[1] ?? '';
  }

  /** Nobody answered, or one who cannot now: asking again may help. */
  get isPassing(): boolean {
    return this.status === 0 || this.status === 429 || this.status === 502 || this.status === 503;
  }
}

const memory = { csrf: '', onLoggedOut: (_error: ApiError): void => undefined };

/** Called by the session: the token for changes, and what to do if the login is over. */
export function setLogin(csrf: string, onLoggedOut?: (error: ApiError) => void): void {
  memory.csrf = csrf;
  if (onLoggedOut) memory.onLoggedOut = onLoggedOut;
}

function address(path: string, parameters: object = {}, query: object = {}): string {
  const given = parameters as Record<string, unknown>;
  const filled = path.replace(/\{(\w+)\}/g, (_all, name: string) =>
    // A path of files keeps its slashes.
    name === 'path' ? String(given[name]).split('/').map(encodeURIComponent).join('/') : encodeURIComponent(String(given[name])),
  );
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== undefined && each !== null && each !== '') search.append(name, String(each));
    }
  }
  const asked = search.toString();
  return asked ? `${filled}?${asked}` : filled;
}

/** A page asks only for what its own coordinator knows; that passes it on to the leader. */
const OLDER_LEADER: Problem = { title: 'The leader is of an older version', detail: 'It does not know what this page asks for. It will be shown as soon as a coordinator of this version leads.', hint: '' };

export async function problemOf(response: Response): Promise<ApiError> {
  let problem: Problem = {};
  try {
    if ((response.headers.get('content-type') ?? '').includes('json')) problem = (await response.json()) as Problem;
  } catch {
    // A status without a readable body is still a status.
  }
  if (problem.reason === 'RouteNotFound') problem = { ...problem, ...OLDER_LEADER };
  return new ApiError(response.status, problem);
}

/** One request as it is, for answers that are no JSON (logs, files, streams). Raises ApiError. */
export async function request(url: string, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers);
  if (init.method && init.method !== 'GET' && memory.csrf) headers.set('Phalanx-Csrf', memory.csrf);
  let response: Response;
  try {
    response = await fetch(url, { ...init, headers, credentials: 'same-origin', cache: 'no-store', redirect: 'error' });
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') throw error;
    throw new ApiError(0, { detail: 'No coordinator answers at this address. The page tries again by itself.' });
  }
  if (response.ok || response.status === 304) return response;
  const refused = await problemOf(response);
  if (refused.status === 401) memory.onLoggedOut(refused);
  throw refused;
}

const KNOWN_MAX = 4; // answers of one question
/** The last answer of each kind that a page keeps asking for, with its entity tag. */
interface Known {
  etag: string;
  value: unknown;
}

/** Something that is asked again and again: of the requests of one signal. */
export class Question {
  /** Of the state that the oldest of its answers was made from; Infinity if each was made for this request. */
  revision = Infinity;
  constructor(readonly known: Map<string, Known>) {}
}

const questions = new WeakMap<AbortSignal, Question>();

/** Requests with this signal may be given an answer of a moment ago. */
export function ask(signal: AbortSignal, question: Question): void {
  questions.set(signal, question);
}

async function call(method: string, path: string, options: { path?: unknown; query?: unknown; body?: unknown; signal?: AbortSignal }) {
  const init: RequestInit = { method };
  if (options.signal) init.signal = options.signal;
  const question = options.signal && method === 'GET' ? questions.get(options.signal) : undefined;
  if (question) return repeated(address(path, options.path ?? {}, options.query ?? {}), init, question);
  if (method !== 'GET' && method !== 'DELETE') {
    init.body = JSON.stringify(options.body ?? {});
    init.headers = { 'Content-Type': 'application/json' };
  }
  const response = await request(address(path, options.path ?? {}, options.query ?? {}), init);
  const text = await response.text();
  return text ? (JSON.parse(text) as unknown) : null;
}

/** An answer that may be shared with other pages; the one that is known, if it is still the same. */
async function repeated(url: string, init: RequestInit, question: Question): Promise<unknown> {
  const last = question.known.get(url);
  const headers: Record<string, string> = { 'Phalanx-Read': 'shared' };
  if (last) headers['If-None-Match'] = last.etag;
  const response = await request(url, { ...init, headers });
  const revision = response.headers.get('phalanx-revision');
  if (revision) question.revision = Math.min(question.revision, Number(revision));
  if (response.status === 304 && last) return last.value;
  const text = await response.text();
  const value = text ? (JSON.parse(text) as unknown) : null;
  const etag = response.headers.get('etag');
  question.known.delete(url);
  if (etag) question.known.set(url, { etag, value });
  if (question.known.size > KNOWN_MAX) question.known.delete(question.known.keys().next().value!);
  return value;
}

export const get = <P extends PathsWith<'get'>>(path: P, options: Options<P, 'get'> = {}): Promise<Reply<P, 'get'>> =>
  call('GET', path, options) as Promise<Reply<P, 'get'>>;
export const post = <P extends PathsWith<'post'>>(path: P, options: Options<P, 'post'> = {}): Promise<Reply<P, 'post'>> =>
  call('POST', path, options) as Promise<Reply<P, 'post'>>;
export const put = <P extends PathsWith<'put'>>(path: P, options: Options<P, 'put'> = {}): Promise<Reply<P, 'put'>> =>
  call('PUT', path, options) as Promise<Reply<P, 'put'>>;
export const patch = <P extends PathsWith<'patch'>>(path: P, options: Options<P, 'patch'> = {}): Promise<Reply<P, 'patch'>> =>
  call('PATCH', path, options) as Promise<Reply<P, 'patch'>>;
export const del = <P extends PathsWith<'delete'>>(path: P, options: Options<P, 'delete'> = {}): Promise<Reply<P, 'delete'>> =>
  call('DELETE', path, options) as Promise<Reply<P, 'delete'>>;
export { address };

/** What a user changed in a form, as the `set` of a resubmit. */

const NUMBERS = new Set(['gpus', 'cores', 'priority', 'max_retries', 'at_once', 'time_limit']);

export function changesOf(
  before: Record<string, string>,
  after: Record<string, string>,
  more: string,
): { set: Record<string, unknown>; error: string } {
  const set: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(after)) {
    if (value !== before[name]) set[name] = valueOf(name, value.trim());
  }
  for (const line of more.split('\n')) {
    if (!line.trim()) continue;
    const equals = line.indexOf('=');
    const name = line.slice(0, equals).trim();
    if (equals < 1 || !/^[a-z][\w.-]*$/i.test(name)) return { set, error: `${line.trim().slice(0, 100)}: expected name = value` };
    set[name] = valueOf(name, line.slice(equals + 1).trim());
  }
  return { set, error: '' };
}

function valueOf(name: string, value: string): unknown {
  if (value === '' && name === 'time_limit') return null;
  return /^-?\d+(\.\d+)?$/.test(value) && NUMBERS.has(name) ? Number(value) : value;
}

interface Planned {
  command: string[];
  request: { cores: number; gpus?: number; memory_bytes?: number; gpu_type?: string | null; gpu_memory_bytes?: number; labels?: Record<string, string> };
  tasks: number;
  priority: number;
  queue: string;
  time_limit_s: number | null;
  array: string | null;
  gang?: { needed: number; gather?: { layer: string; must?: boolean; multiple?: number }[] } | null;
}

/** A job as a request to plan: what of it decides where it goes. */
export function submitOf(job: Planned): Record<string, unknown> {
  const { request } = job;
  const wanted: Record<string, unknown> = {
    command: job.command.length ? job.command : ['true'],
    cores: request.cores,
    gpus: request.gpus ?? 0,
    priority: job.priority,
    queue: job.queue,
    allow_infeasible: true,
  };
  if (request.memory_bytes) wanted['memory'] = request.memory_bytes;
  if (request.gpu_type) wanted['gpu_type'] = request.gpu_type;
  if (request.gpu_memory_bytes) wanted['gpu_memory'] = request.gpu_memory_bytes;
  if (request.labels && Object.keys(request.labels).length) wanted['labels'] = request.labels;
  if (job.time_limit_s) wanted['time_limit'] = job.time_limit_s;
  if (job.array) wanted['array'] = job.array;
  else if (job.tasks > 1) wanted['tasks'] = job.tasks;
  if (job.gang) {
    wanted['min'] = job.gang.needed;
    if (job.gang.gather?.length) wanted['gather'] = job.gang.gather;
  }
  return wanted;
}

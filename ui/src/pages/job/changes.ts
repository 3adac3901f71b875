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

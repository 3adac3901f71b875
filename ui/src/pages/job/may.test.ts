import { expect, test } from 'vitest';
import type { Schemas } from '../../lib/api';
import { allowed, type Rights } from './may';

const GRANTS: Record<string, Record<string, string>> = {
  viewer: { read: 'all' },
  user: { submit: 'all', approve: 'all', control: 'own' },
  operator: { submit: 'all', approve: 'all', control: 'all' },
};
const as = (name: string, role: string): Rights => ({
  login: { name },
  may: (permission) => GRANTS[role]?.[permission] ?? '',
  mayFor: (permission, owner) => GRANTS[role]?.[permission] === 'all' || (GRANTS[role]?.[permission] === 'own' && owner === name),
});
/** A job of ada as a leader of the version before tells it: without `may`. */
const of = (more: Partial<Schemas['JobView']>): Schemas['JobView'] => ({ user: 'ada', status: 'Running', counts: { running: 1 }, ...more }) as Schemas['JobView'];

test('what the leader says is taken as it is', () => {
  expect(allowed(of({ may: ['hold'] }), as('vera', 'viewer'))).toEqual(['hold']);
  expect(allowed(of({ may: [] }), as('ada', 'operator'))).toEqual([]);
});

test('of a leader that does not say it, a job has the buttons of what its user may do', () => {
  expect(allowed(of({}), as('ada', 'user'))).toEqual(['cancel', 'resubmit']);
  expect(allowed(of({ status: 'Pending', counts: { pending: 2 } }), as('ada', 'user'))).toEqual(['cancel', 'hold', 'resubmit']);
  expect(allowed(of({ status: 'Pending', counts: { pending: 2 }, held: '' }), as('ada', 'user'))).toEqual(['cancel', 'release', 'resubmit']);
  expect(allowed(of({ status: 'Failed', counts: { failed: 1 } }), as('ada', 'user'))).toEqual(['retry', 'resubmit']);
  expect(allowed(of({ status: 'Completed', counts: { completed: 1 } }), as('ada', 'user'))).toEqual(['resubmit']);
  expect(allowed(of({ workflow: '01kx:fit' }), as('ada', 'user'))).toEqual(['cancel']);
});

test('of such a leader, others have those of their role', () => {
  const waits = of({ status: 'Pending', counts: { pending: 1 }, unapproved: true });
  expect(allowed(waits, as('vera', 'viewer'))).toEqual([]);
  expect(allowed(waits, as('bob', 'user'))).toEqual(['approve']);
  expect(allowed(waits, as('ada', 'user'))).toEqual(['cancel', 'hold', 'resubmit']);
  expect(allowed(waits, as('olga', 'operator'))).toEqual(['approve', 'cancel', 'hold']);
});

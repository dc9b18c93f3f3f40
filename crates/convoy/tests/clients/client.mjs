// Drives ten kinds through @kubernetes/client-node: every verb, both patch types, selectors, pages, a watch.
//
// usage: node client.mjs DIRECTORY_WITH_NODE_MODULES KUBECONFIG KINDS.json NAMESPACE; prints one line per
// kind, fails at the first fault.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const [modules, kubeconfig, kinds, namespace] = process.argv.slice(2);
const k8s = await import(pathToFileURL(join(modules, 'node_modules/@kubernetes/client-node/dist/index.js')));

const config = new k8s.KubeConfig();
config.loadFromFile(kubeconfig);

const merge = k8s.setHeaderOptions('Content-Type', k8s.PatchStrategy.MergePatch);
const jsonPatch = k8s.setHeaderOptions('Content-Type', k8s.PatchStrategy.JsonPatch);

async function refused(promise, code, reason) {
  const error = await promise.then(() => assert.fail(`expected ${code}`), (error) => error);
  assert.equal(error.code, code, String(error));
  const body = typeof error.body === 'string' ? JSON.parse(error.body) : error.body;
  assert.equal(body.reason, reason);
}

const names = (list) => list.items.map((it) => it.metadata.name);

// Waits for the deletion of an object and returns every event up to it. The stream is left to the end of the
// process: aborting it makes the client throw where nobody can catch.
function follow(path, resourceVersion, last) {
  const seen = [];
  return new Promise((resolve, reject) => {
    const query = { labelSelector: 'run=js', resourceVersion };
    const timer = setTimeout(() => reject(new Error(`watch: only ${JSON.stringify(seen)}`)), 60_000);
    const onEvent = (type, object) => {
      seen.push(`${type} ${object.metadata.name}`);
      if (type === 'DELETED' && object.metadata.name === last) {
        clearTimeout(timer);
        resolve(seen);
      }
    };
    const onEnd = (error) => error && reject(error);
    new k8s.Watch(config).watch(path, query, onEvent, onEnd).catch(reject);
  });
}

async function exercise(fact) {
  const api = config.makeApiClient(k8s[fact.node]);
  const call = (verb, args, options) => api[`${verb}Namespaced${fact.kind}`]({ namespace, ...args }, options);
  const make = (suffix, group) => ({
    apiVersion: fact.apiVersion,
    kind: fact.kind,
    metadata: { name: `js-${suffix}`, labels: { run: 'js', group } },
    ...fact.object,
  });

  const created = await call('create', { body: make('a', 'red') });
  assert.ok(created.metadata.uid && created.metadata.resourceVersion && created.metadata.creationTimestamp);
  for (const suffix of ['b', 'c', 'd']) {
    await call('create', { body: make(suffix, suffix === 'b' ? 'red' : 'blue') });
  }
  const read = await call('read', { name: 'js-a' });
  assert.equal(read.metadata.uid, created.metadata.uid);
  await refused(call('create', { body: make('a', 'red') }), 409, 'AlreadyExists');

  const listed = await call('list', { labelSelector: 'run=js' });
  assert.deepEqual(names(listed), ['js-a', 'js-b', 'js-c', 'js-d']);
  assert.deepEqual(names(await call('list', { labelSelector: 'run=js,group!=blue' })), ['js-a', 'js-b']);
  assert.deepEqual(names(await call('list', { fieldSelector: 'metadata.name=js-c' })), ['js-c']);
  const paged = [];
  let token;
  do {
    const page = await call('list', { labelSelector: 'run=js', limit: 3, _continue: token });
    paged.push(...names(page));
    token = page.metadata._continue;
  } while (token);
  assert.deepEqual(paged, ['js-a', 'js-b', 'js-c', 'js-d']);

  const group = fact.apiVersion.includes('/') ? `/apis/${fact.apiVersion}` : `/api/${fact.apiVersion}`;
  const plural = fact.kind.toLowerCase() + (fact.kind.endsWith('s') ? 'es' : 's');
  const watched = follow(`${group}/namespaces/${namespace}/${plural}`, listed.metadata.resourceVersion, 'js-a');

  const merged = await call('patch', { name: 'js-a', body: fact.merge }, merge);
  assert.notEqual(merged.metadata.resourceVersion, created.metadata.resourceVersion);
  const patched = await call('patch', { name: 'js-a', body: [fact.json] }, jsonPatch);
  assert.notEqual(patched.metadata.resourceVersion, merged.metadata.resourceVersion);

  patched.metadata.annotations = { replaced: 'yes' };
  const replaced = await call('replace', { name: 'js-a', body: patched });
  assert.deepEqual(replaced.metadata.annotations, { replaced: 'yes' });
  replaced.metadata.resourceVersion = created.metadata.resourceVersion;
  await refused(call('replace', { name: 'js-a', body: replaced }), 409, 'Conflict');

  await call('delete', { name: 'js-a' });
  assert.deepEqual(await watched, ['MODIFIED js-a', 'MODIFIED js-a', 'MODIFIED js-a', 'DELETED js-a']);
  await refused(call('read', { name: 'js-a' }), 404, 'NotFound');
  await api[`deleteCollectionNamespaced${fact.kind}`]({ namespace, labelSelector: 'run=js' });
  assert.deepEqual(names(await call('list', { labelSelector: 'run=js' })), []);
  console.log('ok', fact.kind);
}

const core = config.makeApiClient(k8s.CoreV1Api);
await core.createNamespace({ body: { metadata: { name: namespace } } });
assert.ok(names(await core.listNamespace()).includes(namespace));
for (const fact of JSON.parse(readFileSync(kinds, 'utf8'))) {
  try {
    await exercise(fact);
  } catch (error) {
    console.log('FAILED', fact.kind);
    throw error;
  }
}
process.exit(0);

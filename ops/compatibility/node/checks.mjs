// Runs named features one after the other; each prints one line: passed or failed, a tab, the name, a tab, what went
// wrong. Command line: bootstrap address, then the features (none: all).
import { randomUUID } from 'node:crypto'
import { setTimeout as pause } from 'node:timers/promises'

const LIMIT_MS = 60_000

export const unique = prefix => `${prefix}-${randomUUID().slice(0, 8)}`

export async function until (what, condition) {
  const end = Date.now() + 30_000
  while (!(await condition())) {
    if (Date.now() > end) {
      throw new Error(`not within 30 s: ${what}`)
    }
    await pause(20)
  }
}

export async function run (checks) {
  const [bootstrap, ...wanted] = process.argv.slice(2)
  const names = Object.keys(checks).filter(name => wanted.length === 0 || wanted.includes(name))
  names.forEach(name => console.log(`planned\t${name}\t`))
  for (const name of names) {
    const late = pause(LIMIT_MS, undefined, { ref: false }).then(() => { throw new Error(`not within ${LIMIT_MS} ms`) })
    try {
      await Promise.race([checks[name](bootstrap), late])
      console.log(`passed\t${name}\t`)
    } catch (fault) {
      console.log(`failed\t${name}\t${describe(fault)}`)
    }
  }
  process.exit(0)
}

function describe (fault) {
  const causes = (fault.errors ?? []).map(describe).join('; ')
  return `${fault.stack ?? fault} ${causes}`.replaceAll(/\s+/g, ' ').slice(0, 800)
}

// node suite.js DIRECTORY: the tests that abstract-level has for its databases, as classic-level runs them, over Terrace.
'use strict'

const fs = require('fs')
const path = require('path')
const tape = require('tape')
const { ClassicLevel } = require('classic-level')

const libraries = fs.readFileSync('/proc/self/maps', 'utf8').split('\n').filter((line) => line.includes('libleveldb.so'))
if (libraries.length === 0) throw new Error('classic-level was not loaded with libleveldb.so')

let count = 0
require('abstract-level/test')({
  test: tape,
  factory: (options) => new ClassicLevel(path.join(process.argv[2], String(count++)), options)
})

// Checks histories of single keys with porcupine (A. Athalye, "Porcupine: A Fast Linearizability Checker in Go").
//
// Standard input: one operation in a line, as JSON. An operation without a reply has an unknown outcome: it may
// happen at any time after its call, or never. Prints what was checked; ends with 1 if a key's history
// is that of no single copy of it.
//
// Every value that is written is written once, so much is known of most writes without a reply: one whose
// value a reply shows has happened before that reply came, and without the others a history is tried first, since
// the search is exponential in their number.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// A command on one key. Values are never empty; an empty one says that there is none.
type command struct {
	Key    string `json:"key"`
	Client int    `json:"client"`
	Kind   string `json:"kind"`
	Value  string `json:"value"`
	Call   int64  `json:"call"`
	Return int64  `json:"return"`
	Reply  string `json:"reply"`
	Known  bool   `json:"known"`
}

// What a command makes of a value, and what it replies.
func execute(before string, it command) (after string, reply string) {
	switch it.Kind {
	case "set":
		return it.Value, "OK"
	case "get":
		return before, before
	case "append":
		after = before + it.Value
		return after, fmt.Sprint(len(after))
	case "getdel":
		return "", before
	case "del":
		if before == "" {
			return "", "0"
		}
		return "", "1"
	}
	panic("no such command: " + it.Kind)
}

func model() porcupine.Model {
	return porcupine.Model{
		Init: func() interface{} { return "" },
		Step: func(state, input, output interface{}) (bool, interface{}) {
			it := input.(command)
			after, reply := execute(state.(string), it)
			return !it.Known || reply == it.Reply, after
		},
		Equal: func(a, b interface{}) bool { return a.(string) == b.(string) },
	}
}

// The earliest end of a reply that shows the value of a write without a reply; never, if none does.
func shownAt(write command, history []command) int64 {
	shown := int64(math.MaxInt64)
	for _, other := range history {
		shows := other.Known && other.Return > write.Call && strings.Contains(other.Reply, write.Value)
		if shows && other.Return < shown {
			shown = other.Return
		}
	}
	return shown
}

// Whether one copy of the key could have given the replies.
func check(history []command) porcupine.CheckResult {
	all, sure := []porcupine.Operation{}, []porcupine.Operation{}
	for _, it := range history {
		if !it.Known && it.Kind == "get" {
			continue
		}
		if !it.Known && (it.Kind == "set" || it.Kind == "append") {
			it.Return = shownAt(it, history)
		}
		operation := porcupine.Operation{
			ClientId: it.Client, Input: it, Call: it.Call, Output: it.Reply, Return: it.Return,
		}
		all = append(all, operation)
		if it.Return < math.MaxInt64 {
			sure = append(sure, operation)
		}
	}
	if porcupine.CheckOperationsTimeout(model(), sure, time.Minute) == porcupine.Ok {
		return porcupine.Ok
	}
	return porcupine.CheckOperationsTimeout(model(), all, time.Minute)
}

func main() {
	histories := map[string][]command{}
	input := bufio.NewScanner(os.Stdin)
	input.Buffer(make([]byte, 1<<20), 1<<24)
	count, unknown := 0, 0
	for input.Scan() {
		var it command
		if err := json.Unmarshal(input.Bytes(), &it); err != nil {
			panic(err)
		}
		if !it.Known {
			it.Return = math.MaxInt64
			unknown++
		}
		count++
		histories[it.Key] = append(histories[it.Key], it)
	}
	if input.Err() != nil {
		panic(input.Err())
	}
	wrong := []string{}
	for key, history := range histories {
		result := check(history)
		if result != porcupine.Ok {
			wrong = append(wrong, fmt.Sprintf("%s (%d operations): %s", key, len(history), result))
		}
	}
	fmt.Printf("%d keys, %d operations, %d of unknown outcome\n", len(histories), count, unknown)
	if len(wrong) > 0 {
		fmt.Println("not linearizable: " + strings.Join(wrong, ", "))
		os.Exit(1)
	}
	fmt.Println("all histories are linearizable")
}

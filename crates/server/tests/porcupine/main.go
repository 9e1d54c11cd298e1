// Checks histories of single keys with porcupine (A. Athalye, "Porcupine: A Fast Linearizability Checker in Go").
//
// Standard input: one operation in a line, as JSON. An operation without a reply has an unknown outcome: it may
// happen at any time after its call, or never. Prints what was checked; ends with 1 if a key's history
// is that of no single copy of it.
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

func main() {
	histories := map[string][]porcupine.Operation{}
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
		histories[it.Key] = append(histories[it.Key], porcupine.Operation{
			ClientId: it.Client, Input: it, Call: it.Call, Output: it.Reply, Return: it.Return,
		})
	}
	if input.Err() != nil {
		panic(input.Err())
	}
	wrong := []string{}
	for key, history := range histories {
		result := porcupine.CheckOperationsTimeout(model(), history, time.Minute)
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

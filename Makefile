# What takes longer than a change should wait for. Everything else is in .ci/run.
SCHEDULES ?= 1000000
QUARTERS  ?= 12
SESSIONS  ?= 200000
DRILL     ?= 1h
KEYS      ?= 0
FUZZ      ?= 5m
EPISODES  ?= 1000
COUNT     ?= 20
SEEDS     ?= 12

SERVERS   ?= 2.10 2.11 2.12 2.14 2.15

.PHONY: check soak simulate drill depose churn model proof fuzz repeat bench compare matrix

check: ## what must hold before a change lands
	.ci/run

soak: simulate drill depose churn fuzz repeat ## the long versions of all that is tried against the promises

simulate: ## schedules against a bucket that does badly whatever a bucket can, and every schedule with up to two faults
	go test ./internal/test/sim -v -timeout 0 -run 'TestSchedules$$|TestAllSchedules' -args -schedules $(SCHEDULES) -quarters $(QUARTERS)
	go test ./internal/test/sim/sessions -v -timeout 0 -run 'TestSchedules$$' -args -schedules $(SESSIONS)

drill: ## faults on processes and on a cluster of three servers; KEYS=50: each process leads so many keys by a session
	go run ./cmd/election-cli drill --processes --for $(DRILL) --sessions $(KEYS)
	go run ./cmd/election-cli drill --processes --for $(DRILL) --sessions $(KEYS) --replicas 1

depose: ## leaders that write on when they lead no more
	go test ./fence -v -timeout 0 -run NoWriteOf -args -episodes $(EPISODES) -at-once 40

churn: ## half an hour of members of a group that come, go and fail, so many times
	go test ./group -v -timeout 0 -run WhateverHappens -args -churn 30m -seeds $(SEEDS)

model: ## every state of a model of the protocol; MODEL=full for the larger searches too
	spec/check.sh $(MODEL)

proof: ## the rule of the election, proved for any number of candidates; needs z3 and cvc5
	go run ./spec/proof

# as many workers as processors: the tests of some packages, which mostly wait, say that eight times as many run at once
fuzz = go test -run '^$$' -parallel $(shell getconf _NPROCESSORS_ONLN) -fuzztime $(FUZZ) -fuzz

fuzz: ## bytes that somebody else wrote, and clocks that somebody else set
	$(fuzz) FuzzRecord ./internal/record
	$(fuzz) FuzzNotification ./internal/notify
	$(fuzz) FuzzNotified ./internal/core
	$(fuzz) FuzzRequest ./internal/control
	$(fuzz) FuzzReplySubject ./internal/control
	$(fuzz) FuzzAnswer ./internal/control
	$(fuzz) FuzzEpochRecord ./fence
	$(fuzz) FuzzGuard ./fence
	$(fuzz) FuzzView ./group
	$(fuzz) FuzzRead ./internal/drill/history
	$(fuzz) FuzzLease ./internal/lease
	$(fuzz) FuzzCommandLine ./cmd/election-cli
	$(fuzz) FuzzRate ./cmd/election-cli
	$(fuzz) FuzzLeaderFile ./internal/cli/leaderfile
	$(fuzz) FuzzPrintable ./internal/cli/terminal

repeat: ## tests that fail once in twenty runs
	go test -race -count $(COUNT) -timeout 0 ./...

matrix: ## the library, the command and drills on servers of these versions, the newest patch of each
	go test ./internal/test/matrix -v -count=1 -timeout 20m -args -servers "$(SERVERS)"

bench: ## everything in docs/PERFORMANCE.md
	go test -run '^$$' -bench 'IsLeader|TimeNow|TermValid' -count 5 .
	cd bench && go test -run '^$$' -bench . -skip 'Fence|Timing|OneMember' -benchtime 40x -timeout 0 .
	cd bench && go test -run '^$$' -bench OneMember -benchtime 1x -timeout 0 .
	cd bench && go run ./groups
	cd bench && go test -run '^$$' -bench Fence -benchtime 5s -timeout 0 .

compare: ## everything in docs/COMPARISON.md; Linux, root
	cd bench/compare && go test -run Comparison -compare -v -timeout 10m .

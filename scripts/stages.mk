# Which stages of scripts/test need which, and run with which versions of PostgreSQL. scripts/test calls it with the STAGES,
# the versions (MAJORS), and a folder (LOGS), which has the output of a stage while it runs, and in the end the file
# `failed`. A job is a stage, or STAGE.VERSION.

SCRIPT := scripts/test

# With the oldest version: about packages, about programs beside the server, and about clocks, disks and processes, of
# which the newest has `chaos`.
OLDEST := clients faults package patroni
# With the newest: what is about a build, not about a version.
NEWEST := pg
# With the oldest and the newest: what the library does itself, whose code differs between 15, 16 and 17 only, and what
# PostgreSQL took on once, and kept.
ENDS := clippy manual server chaos upstream
# With each version.
EACH := postgres install regress instructions sql citus
# What runs on an installed library.
INSTALLED := regress instructions package upstream manual sql server faults clients chaos patroni citus

# What computes without a pause. The servers of the other stages leave it what they do not need of the processors.
COMPUTING := core loom clippy bench fleet xtask pgxn site lint fmt
# What others wait for comes first, then what takes longest: make begins them in this order, as they become ready.
ORDER := postgres pgrx pg install faults server patroni clients manual sql chaos package upstream upgrade regress \
    instructions citus $(COMPUTING)

oldest = $(firstword $(MAJORS))
newest = $(lastword $(MAJORS))
ends = $(sort $(oldest) $(newest))
with = $(or $(if $(filter $1,$(EACH)),$(MAJORS)),$(if $(filter $1,$(ENDS)),$(ends)),$(if $(filter $1,$(OLDEST)),$(oldest)),\
    $(if $(filter $1,$(NEWEST)),$(newest)))
jobs = $(foreach stage,$1,$(or $(addprefix $(stage).,$(call with,$(stage))),$(stage)))

ASKED := $(call jobs,$(filter $(STAGES),$(ORDER)))
unknown := $(filter-out $(ORDER),$(STAGES))
$(if $(unknown),$(error no stage $(unknown)))

computing := $(filter $(call jobs,$(COMPUTING)),$(ASKED))

all: $(if $(computing),computing) $(filter-out $(computing),$(ASKED))
	@! test -e $(LOGS)/failed

# By a make of its own, which nothing in this one waits for.
computing:
	@nice -n 10 $(MAKE) -f scripts/stages.mk --no-print-directory --keep-going --jobs=2 --output-sync=target \
	    LOGS='$(LOGS)' SCRIPT='$(SCRIPT)' STAGES='$(STAGES)' MAJORS='$(MAJORS)' $(computing)

.SECONDEXPANSION:
$(call jobs,pg install): postgres$$(suffix $$@) pgrx
# It installs the library of its own tests, which the stages after `install` must not see.
$(call jobs,install): $$(filter pg$$(suffix $$@),$(ASKED))
# The oldest's builds what all share. Most stages wait for the newest's, so it is the second.
$(filter-out install.$(oldest),$(call jobs,install)): install.$(oldest)
$(filter-out $(ends:%=install.%),$(call jobs,install)): install.$(newest)
$(call jobs,$(INSTALLED)): install$$(suffix $$@)
upgrade: $(call jobs,install)

# Cargo would take make's jobs for its own.
unexport MAKEFLAGS MFLAGS
.PHONY: all computing $(call jobs,$(ORDER))

environment = $(if $(filter upgrade $(INSTALLED),$(basename $@)),SNOWFLAKE_IS_INSTALLED=1)

# The stage `pg` does not fail here, because others wait for its end, not for its success.
$(call jobs,$(ORDER)):
	@if $(environment) $(SCRIPT) $(patsubst .%,--pg %,$(suffix $@)) $(basename $@) >$(LOGS)/$@ 2>&1 </dev/null; then \
	    sed -nE '/: SKIPPED/p; s/^$(basename $@) took/$@: passed in/p' $(LOGS)/$@; \
	else \
	    cat $(LOGS)/$@; awk -v job=$@ -f scripts/failed.awk $(LOGS)/$@ >>$(LOGS)/failed; \
	    test $(basename $@) = pg; \
	fi
